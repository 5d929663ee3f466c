"""Parallel texts: two files or two columns, plain or compressed, and the number of a wrong line."""

import gzip
import os
from pathlib import Path

import pytest

from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.data.pairs import PairsConfig
from transformer.data.pairs_text import load_parallel

PAIR = (["a dog .", "", "two\u2028cats\x85 ."], ["ein Hund .", "nichts", "zwei Kätzchen ."])


def written(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_two_files_and_two_columns_are_the_same_pair(tmp_path, suffix, end):
    names = (tmp_path / f"x.{language}{suffix}" for language in ("en", "de"))
    source, target = (written(n, end.join([*lines, ""])) for n, lines in zip(names, PAIR, strict=True))
    assert load_parallel(source, target) == PAIR
    columns = end.join(f"{s}\t{t}" for s, t in zip(*PAIR, strict=True))
    assert load_parallel(written(tmp_path / f"x.tsv{suffix}", columns), None) == PAIR


@pytest.mark.parametrize(("line", "columns"), [("no tab", 1), ("", 1), ("a\tb\tc", 3)])
def test_a_line_without_two_columns_is_named_by_its_number(tmp_path, line, columns):
    path = written(tmp_path / "x.tsv", f"a\tb\n{line}\nc\td\n")
    with pytest.raises(ConfigError, match=rf"line 2 of .*x\.tsv has {columns} columns?, not"):
        load_parallel(path, None)


def test_unequal_counts_name_the_first_line_that_stands_alone(tmp_path):
    source, target = written(tmp_path / "x.en", "a\nb\nc\n"), written(tmp_path / "x.de", "a\nb")
    with pytest.raises(ConfigError, match=r"3 lines in .*x\.en, 2 in .*x\.de: line 3 has no counterpart"):
        load_parallel(source, target)


def test_the_field_of_a_wrong_file_is_named(tmp_path):
    """Of the training pairs as of others."""
    good, gone = written(tmp_path / "train.en", "a"), str(tmp_path / "gone")
    for part in ("data.", "data.validation_", "data.test_"):
        for name, files in {"source": (gone, good), "target": (good, gone)}.items():
            with pytest.raises(ConfigError, match=rf"^{part}{name}: no file"):
                load_parallel(*files, part)
        with pytest.raises(ConfigError, match=rf"^{part}source: line 1 of .* has 1 columns"):
            load_parallel(good, None, part)
    (tmp_path / "train.tsv").write_text("a\tb\n" * 40)
    for name in ("validation", "test"):
        with pytest.raises(ConfigError, match=rf"^data\.{name}_source: no file"):
            load_data(PairsConfig(source=str(tmp_path / "train.tsv"), **{f"{name}_source": gone}))


def test_lines_that_end_with_carriage_returns_alone(tmp_path):
    with pytest.raises(ConfigError, match=r"^data\.source: .*mac\.tsv has carriage returns and no line feeds"):
        load_parallel(written(tmp_path / "mac.tsv", "a\tb\rc\td\r"), None)


def test_wrong_files_are_one_line(tmp_path):
    good = written(tmp_path / "train.en", "a")
    with pytest.raises(ConfigError, match=r"^data\.target: no file .*trian\.en; did you mean .*train\.en\?"):
        load_parallel(good, str(tmp_path / "trian.en"))
    with pytest.raises(ConfigError, match=r"x\.de is empty"):
        load_parallel(good, written(tmp_path / "x.de", ""))
    with pytest.raises(ConfigError, match=r"line 2 of .*latin\.de is not UTF-8"):
        load_parallel(good, written(tmp_path / "latin.de", b"ok\ncaf\xe9\n"))
    for content in (b"plain text", gzip.compress(b"some text")[:-9], gzip.compress(b"x" * 99)[:12] + b"\xff" * 9):
        (tmp_path / "bad.gz").write_bytes(content)
        with pytest.raises(ConfigError, match=r"cannot read .*bad\.gz") as caught:
            load_parallel(good, str(tmp_path / "bad.gz"))
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot read"):
        load_parallel(str(tmp_path), None)


def test_multi30k():
    data = os.environ.get("TRANSFORMER_DATA")
    if data is None:
        pytest.skip("TRANSFORMER_DATA is not set: there is no multi30k here")
    folder = Path(data) / "multi30k"
    english, german = load_parallel(str(folder / "train.en.gz"), str(folder / "train.de.gz"))
    assert len(english) == len(german) == 29_000
    assert english[0] == "Two young, White males are outside near many bushes."


def test_no_more_is_unpacked_than_is_allowed(tmp_path, monkeypatch):
    """A small file may become a large one."""
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(b"0" * 10**6))
    monkeypatch.setenv("TRANSFORMER_UNPACKED", "999999")
    with pytest.raises(ConfigError, match=r"zeros\.gz becomes more than 999,999 bytes; TRANSFORMER_UNPACKED=BYTES"):
        load_parallel(str(path), str(path))
    monkeypatch.setenv("TRANSFORMER_UNPACKED", "1000000")
    assert load_parallel(str(path), str(path))[0] == ["0" * 10**6]
    monkeypatch.setenv("TRANSFORMER_UNPACKED", "1 GB")
    with pytest.raises(ConfigError, match="TRANSFORMER_UNPACKED: '1 GB' is not a number of bytes"):
        load_parallel(str(path), str(path))
