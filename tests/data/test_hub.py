"""Data sets of the hub: the same lines as from files, from a folder in the hub's format."""

import gzip
import json
import re
import typing

import pytest

from transformer.core.errors import ConfigError
from transformer.data.corpus import load_corpus
from transformer.data.hub import hub_lines
from transformer.data.labelled import parse_labelled
from transformer.data.pairs_text import load_parallel
from transformer.data.tagged import parse_tagged
from transformer.data.text import load_text
from transformer.runs.data import TextConfig

pytest.importorskip("datasets", reason="the extra hub is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the library and its dependencies
ROWS = [{"text": "a b", "label": 1, "pair": {"en": "hi", "de": "hallo"}}, {"text": "c", "label": 0, "pair": None}]
ROWS[1]["pair"] = {"en": "you", "de": "du"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub")
    (path / "train.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path_factory):
    import datasets

    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def test_lines(folder):
    """A line for each row, columns side by side, fields by dots, numbers as text."""
    assert hub_lines(f"hub:{folder}:train:text") == ["a b", "c"]
    assert hub_lines(f"hub:{folder}:train:label,text") == ["1\ta b", "0\tc"]
    assert hub_lines(f"hub:{folder}:train:pair.de") == ["hallo", "du"]


@pytest.mark.parametrize("between", ["", ","])
def test_an_empty_row_ends_a_text_of_labelled_words(between, tmp_path):
    (tmp_path / "train.csv").write_text(f"word,label\nthe,D\ncat,N\n{between}\nold,A\n")
    address = f"hub:{tmp_path}:train:word,label"
    assert parse_tagged(address) == [[("the", "D"), ("cat", "N")], [("old", "A")]]
    if not between:
        assert hub_lines(address) == ["the\tD", "cat\tN", "old\tA"]


def test_a_column_may_have_a_dot_in_its_name(tmp_path):
    (tmp_path / "train.csv").write_text("reviews.text\n0123\n")
    assert hub_lines(f"hub:{tmp_path}:train:reviews.text") == ["0123"]


def test_a_part_of_a_split(folder):
    assert hub_lines(f"hub:{folder}:train[:1]:text") == ["a b"]
    assert hub_lines(f"hub:{folder}:default:train[1:]:text") == ["c"]


@pytest.mark.parametrize("separator", ["|", "\n\n", "\n"])
def test_rows_are_documents(separator, tmp_path):
    """Where documents are asked for, whatever is in a row or at its end; other rows of the same text are other data."""

    def corpus(*rows):
        (tmp_path / "train.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in rows))
        path = f"hub:{tmp_path}:train:text"
        return load_corpus(TextConfig(path=path, document_separator=separator, validation_fraction=0.15))

    found = corpus("a\n\nb", "cccc\n", "", "de")
    assert found.train_ends.tolist() == [4, 9]
    assert found.tokenizer.decode(found.train) == "a\n\nb" + "cccc\n"
    assert corpus("ab\ncd", "efg", "h").fingerprint != corpus("ab", "cd\nefg", "h").fingerprint


def test_the_same_path_as_files(folder):
    """Texts, labelled texts and pairs read them where they read a file."""
    assert load_text(f"hub:{folder}:train:text").content == "a b\nc"
    assert parse_labelled(f"hub:{folder}:train:label,text") == [("1", "a b"), ("0", "c")]
    both = load_parallel(f"hub:{folder}:train:pair.en", f"hub:{folder}:train:pair.de")
    assert both == (["hi", "you"], ["hallo", "du"])
    assert load_parallel(f"hub:{folder}:train:pair.en,pair.de", None) == both


def test_names_of_classes(folder, monkeypatch):
    """A class is written by its name where the data set has one."""
    import datasets

    rows = datasets.Dataset.from_list([{"label": 0}, {"label": 1}]).cast_column(
        "label", datasets.ClassLabel(names=["bad", "good"])
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda *name, split: rows)
    assert hub_lines("hub:x:train:label") == ["bad", "good"]


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("train", "is not of the form hub:NAME:SPLIT:COLUMN"),
        ("train:tex", "has no column 'tex'; did you mean 'text'"),
        ("train:pair.fr", r"has no column 'pair.fr'; known: de, en"),
        ("tain:text", "cannot load hub:"),
    ],
)
def test_wrong_names(folder, rest, message):
    """One line each."""
    with pytest.raises(ConfigError, match=message) as error:
        hub_lines(f"hub:{folder}:{rest}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (None, "row 2 of hub:x:train:text has nothing in 'text', and a text is needed"),
        (["EU", "rejects"], "row 2 of hub:x:train:text has a list in 'text', and a text is needed"),
        ({"a": 1}, "row 2 of hub:x:train:text has a dict in 'text', and a text is needed"),
    ],
)
def test_cells_that_are_no_text_are_named(monkeypatch, cell, said):
    import datasets

    rows = Rows([{"text": "a"}, {"text": cell}])
    monkeypatch.setattr(datasets, "load_dataset", lambda *name, split: rows)
    with pytest.raises(ConfigError, match=re.escape(said)):
        hub_lines("hub:x:train:text")


def test_a_row_without_a_field_is_named(monkeypatch):
    import datasets

    rows = Rows([{"m": {"text": "a"}}, {"m": None}])
    monkeypatch.setattr(datasets, "load_dataset", lambda *name, split: rows)
    with pytest.raises(ConfigError, match=r"^data: row 2 of hub:x:train:m\.text has no 'm\.text'$"):
        hub_lines("hub:x:train:m.text")


class Rows(list):
    features: typing.ClassVar = {}


def test_classes_within_a_field_and_rows_without_one(monkeypatch):
    import datasets

    kind = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"a": {"b": kind}, "label": kind})
    rows = datasets.Dataset.from_list([{"a": {"b": 1}, "label": 0}, {"a": {"b": 0}, "label": -1}], features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *name, split: rows)
    assert hub_lines("hub:x:train:a.b") == ["good", "bad"]
    with pytest.raises(ConfigError, match="row 2 of hub:x:train:label has nothing in 'label'"):
        hub_lines("hub:x:train:label")


def test_a_cell_may_hold_line_breaks(monkeypatch):
    import datasets

    rows = datasets.Dataset.from_list([{"label": "x", "text": "one\ny\ttwo"}, {"label": "y", "text": "three"}])
    monkeypatch.setattr(datasets, "load_dataset", lambda *name, split: rows)
    assert parse_labelled("hub:x:train:label,text") == [("x", "one\ny\ttwo"), ("y", "three")]


def test_a_cell_with_a_tab_is_not_taken_for_two(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"label": "a\\tb", "text": "one\\ttwo"}\n')
    assert hub_lines(f"hub:{tmp_path}:train:text") == ["one\ttwo"]
    with pytest.raises(ConfigError, match=r"^data: row 1 of .* has a tab in a cell, which would be two$"):
        hub_lines(f"hub:{tmp_path}:train:label,text")


def test_a_csv_file_beside_others_does_not_say_what_they_are(folder, tmp_path):
    (tmp_path / "train.jsonl").write_text((folder / "train.jsonl").read_text())
    (tmp_path / "train_2.jsonl").write_text((folder / "train.jsonl").read_text())
    (tmp_path / "sizes.csv").write_text("a,b\n1,2\n")
    assert set(hub_lines(f"hub:{tmp_path}:train:text")) == {"a b", "c"}


def test_cells_of_csv_files_stay_as_they_are(tmp_path):
    """Digits keep their zeros, and words that others take for nothing are words; an empty cell is named."""
    (tmp_path / "train.csv").write_text('source,target\n0123,3210\n0045,"5,40"\nNA,1.10\n')
    assert hub_lines(f"hub:{tmp_path}:train:source,target") == ["0123\t3210", "0045\t5,40", "NA\t1.10"]
    (tmp_path / "train.csv").write_text(",source,target\n0,0123,3210\n1,0045,7\n")  # as pandas writes its rows
    (tmp_path / "test.csv").write_text("source\n09\n")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "old.jsonl").write_text("{}")
    assert hub_lines(f"hub:{tmp_path}:train:source,target") == ["0123\t3210", "0045\t7"]
    assert hub_lines(f"hub:{tmp_path}:test:source") == ["09"]
    (tmp_path / "about.json").write_text("{}")  # which changes nothing
    assert hub_lines(f"hub:{tmp_path}:train:source,target") == ["0123\t3210", "0045\t7"]
    (tmp_path / "about.json").unlink()
    (tmp_path / "train.csv").unlink()
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        file.write("source,target\n007,c\n")
    assert hub_lines(f"hub:{tmp_path}:train:source,target") == ["007\tc"]
    (tmp_path / "train.csv.gz").unlink()
    (tmp_path / "train.csv").write_text("source,target\n0123,3210\n45,\n")
    with pytest.raises(ConfigError, match=r"row 2 of hub:.* has nothing in 'target'"):
        hub_lines(f"hub:{tmp_path}:train:source,target")
