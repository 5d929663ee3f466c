"""Labelled texts: lines, and the number of a wrong one."""

import pytest

from transformer.config.variant import ConfigError
from transformer.data.labelled import parse_labelled


def written(path, content):
    path.write_bytes(content.encode())
    return str(path)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_lines(tmp_path, end):
    path = written(tmp_path / "data.tsv", f"pos\tschön, très\u2028bien\nneg\ta\tb{end}")
    assert parse_labelled(path) == [("pos", "schön, très\u2028bien"), ("neg", "a\tb")]


@pytest.mark.parametrize("line", ["no tab", "", "\ttext", "label\t", "label\t  "])
def test_a_wrong_line_is_named_by_its_number(tmp_path, line):
    path = written(tmp_path / "data.tsv", f"a\tone\n{line}\nb\ttwo\n")
    with pytest.raises(ConfigError, match=r"line 2 of .*data\.tsv is not label<TAB>text"):
        parse_labelled(path)


def test_wrong_files_are_one_line(tmp_path):
    written(tmp_path / "train.tsv", "a\tb")
    with pytest.raises(ConfigError, match=r"no file .*trian\.tsv; did you mean .*train\.tsv\?"):
        parse_labelled(str(tmp_path / "trian.tsv"))
    with pytest.raises(ConfigError, match="is empty"):
        parse_labelled(written(tmp_path / "empty.tsv", ""))
    (tmp_path / "latin.tsv").write_bytes(b"a\tcaf\xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        parse_labelled(str(tmp_path / "latin.tsv"))
