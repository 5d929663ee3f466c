"""The folder of a run: nothing that it did not write is deleted, and what is damaged is named."""

import json
import re

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.files import Damaged
from transformer.runs.config import Replica
from transformer.training.workdir import CONFIG, held_for_run, identity, read_identity

WRITTEN = (
    "metrics.jsonl",
    "checkpoints/00000012/manifest.json",
    "checkpoints/00000012/state/d/0",
    "checkpoints/.00000013.partial/state/d/0",
    "tokenizer.json",
    "result.json",
    "sample.txt",
    "loss.png",
    ".result.json.partial",
    "model/config.json",
    "model/model.safetensors",
)


@pytest.fixture
def own(config, corpus):
    return identity(corpus.complete(config), (Replica(seed=0),), corpus)


@pytest.fixture
def folder(tmp_path, own):
    """That of a run, with everything that a run may write."""
    folder = tmp_path / "run"
    begin(folder, own, "refuse")
    put(folder, *WRITTEN)
    return folder


def begin(folder, own, how):
    with held_for_run(folder, own, how, {}):
        pass


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def test_a_folder_that_is_not_there_yet_is_overwritten(tmp_path, own):
    begin(tmp_path / "new", own, "overwrite")
    assert names(tmp_path / "new") == [".lock", "config.json", "environment.json"]


def test_a_run_is_overwritten(folder, own):
    begin(folder, own, "overwrite")
    assert names(folder) == [".lock", "config.json", "environment.json"]


@pytest.mark.parametrize(
    "foreign",
    ["thesis.tex", "checkpoints/notes.txt", "model/vocab.txt", "checkpoints/7/state", "data/train.en", "model.py"],
)
def test_what_no_run_wrote_stops_it_and_everything_stays(folder, own, foreign):
    put(folder, foreign)
    before = names(folder)
    with pytest.raises(ConfigError, match=f"holds {re.escape(foreign)}, which no run wrote"):
        begin(folder, own, "overwrite")
    assert names(folder) == before


@pytest.mark.parametrize("text", ['{"model_type": "llama"}', "[]", "5", "", "\\xff", None])
def test_a_folder_with_another_config_is_not_deleted(folder, own, text):
    """Such as that of a published model."""
    (folder / CONFIG).write_text(text) if text is not None else (folder / CONFIG).unlink()
    before = names(folder)
    with pytest.raises(ConfigError, match=r"nothing says that a run wrote it|holds no config\.json"):
        begin(folder, own, "overwrite")
    assert names(folder) == before


def test_an_empty_folder_of_somebody_stays(folder, own):
    (folder / "figures").mkdir()
    with pytest.raises(ConfigError, match="holds figures, which no run wrote"):
        begin(folder, own, "overwrite")


def test_a_link_is_deleted_and_not_what_it_leads_to(folder, own, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    put(elsewhere, "thesis.tex")
    (folder / "predictions.png").symlink_to(elsewhere)
    begin(folder, own, "overwrite")
    assert names(elsewhere) == ["thesis.tex"]
    assert "predictions.png" not in names(folder)


def test_a_link_to_a_folder_of_somebody_stays(folder, own, tmp_path):
    """It has no files of its own by which it would be seen."""
    put(tmp_path / "elsewhere", "thesis.tex")
    (folder / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="holds figures, which no run wrote"):
        begin(folder, own, "overwrite")
    assert (folder / "figures").is_symlink()


def test_runs_in_folders_of_a_run_go_with_it(folder, own):
    """Commands that train for comparison put them there; what is foreign in them stops too."""
    begin(folder / "length", own, "refuse")
    put(folder / "length", *WRITTEN)
    put(folder / "length", "thesis.tex")
    with pytest.raises(ConfigError, match=r"length holds thesis\.tex"):
        begin(folder, own, "overwrite")
    (folder / "length" / "thesis.tex").unlink()
    begin(folder, own, "overwrite")
    assert not (folder / "length").exists()


def test_a_deletion_that_was_cut_short_goes_on(folder, own, monkeypatch):
    """What proves that a run wrote the folder goes last."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        begin(folder, own, "overwrite")
    monkeypatch.undo()
    begin(folder, own, "overwrite")
    assert names(folder) == [".lock", "config.json", "environment.json"]


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "\\xff", '{"run": {}}'])
def test_a_damaged_config_is_named_when_it_is_read_or_resumed(folder, own, text):
    (folder / CONFIG).write_text(text)
    for read in (lambda: read_identity(folder), lambda: begin(folder, own, "resume")):
        with pytest.raises(Damaged, match=r"run/config\.json: "):
            read()


def test_a_changed_digit_of_a_config_is_found(folder):
    text = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(text.replace('"steps": 12', '"steps": 13'))
    with pytest.raises(Damaged, match="is not what was written, by its hash"):
        read_identity(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"packages": 3}', json.dumps({"devices": {}})])
def test_a_damaged_environment_does_not_block(folder, own, text):
    """It is information only: it is written again, and a warning says what was there."""
    path = folder / "environment.json"
    whole = path.read_text()
    path.write_text(text)
    with pytest.warns(UserWarning, match=r"environment\.json|continues with other"):
        begin(folder, own, "resume")
    assert path.read_text() == whole


def test_what_is_no_folder_and_no_way(tmp_path, own):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=rf"^workdir: {tmp_path}/file is not a folder$"):
        begin(tmp_path / "file", own, "refuse")
    with pytest.raises(ConfigError, match=r"^when_not_empty: unknown value 'resum'; did you mean 'resume'"):
        begin(tmp_path / "new", own, "resum")


def test_initial_parameters_are_part_of_what_a_run_is(config, corpus):
    """By their paths and by their values."""
    params = {"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)}
    others = [
        {"a": params["b"], "b": params["a"]},
        {**params, "b": 2 * params["b"]},
        {"a": params["a"], "c": params["b"]},
    ]
    made = [identity(config, (Replica(seed=0),), corpus, initial) for initial in (None, params, dict(params), *others)]
    assert made[1].sha256 == made[2].sha256
    assert len({each.sha256 for each in made}) == 5


def test_a_published_model_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ConfigError, match=r"^workdir: .* holds a published model, which pretrained\.load reads$"):
        read_identity(tmp_path)
