"""Files are read as they were written, or named in one line."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.core.errors import ConfigError
from transformer.core.files import DEEPEST, Damaged, read_json, read_sealed, write_sealed

BODY = {"a": 1, "b": [0.1, None, True], "c": {"ö": "x"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.json"


@settings(deadline=None)
@given(body=st.dictionaries(st.text().filter(lambda name: name != "sha256"), JSON, max_size=4))
def test_what_is_written_is_read(tmp_path_factory, body):
    path = tmp_path_factory.mktemp("files") / "a.json"
    write_sealed(path, body)
    assert read_sealed(path) == body


def test_a_changed_bit_is_found(path):
    """Wherever it is, unless what is said stays the same, such as a space that becomes a line break."""
    write_sealed(path, BODY)
    whole = path.read_bytes()
    for i in range(8 * len(whole)):
        path.write_bytes(whole[: i // 8] + bytes([whole[i // 8] ^ (1 << i % 8)]) + whole[i // 8 + 1 :])
        with contextlib.suppress(Damaged):
            assert read_sealed(path) == BODY


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no JSON"),
        (b'{"a": 1', "is no JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[]", "holds no object"),
        (b"5", "holds no object"),
        (b"null", "holds no object"),
        (b"{}", "has no hash"),
        (b'{"sha256": []}', "is not what was written"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", f"is nested more than {DEEPEST} times"),
        (b'{"a": ' + b"[" * 100_000, f"is nested more than {DEEPEST} times"),
    ],
)
def test_what_is_no_such_file_is_named(path, content, said):
    path.write_bytes(content)
    with pytest.raises(Damaged, match=rf"a\.json: {said}"):
        read_sealed(path)


def test_what_cannot_be_read_is_named(path):
    path.mkdir()
    with pytest.raises(Damaged, match=r"a\.json: cannot be read: Is a directory"):
        read_json(path)


def test_a_large_file_is_refused_before_it_is_read(path):
    with path.open("wb") as file:
        file.truncate(10**12)  # which takes no space
    with pytest.raises(Damaged, match="has 1,000,000,000,000 bytes, more than"):
        read_json(path)


def test_a_folder_in_place_of_a_file_is_named(path):
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(Damaged, match="is a folder, in place of a file"):
        write_sealed(path, {})


def test_damage_is_a_wrong_choice_of_a_file(path):
    """So that commands say it in one line."""
    path.write_text(json.dumps(BODY))
    with pytest.raises(ConfigError):
        read_sealed(path)
