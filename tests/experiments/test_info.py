"""What a folder holds."""

import dataclasses
import shutil
import sys

import jax
import pytest

from experiments import info
from experiments.command import way_on
from transformer.core.errors import ConfigError
from transformer.core.files import write_sealed
from transformer.training.workdir import read_identity


@pytest.fixture
def said(monkeypatch, capsys):
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["info", *words])
        info.main()
        return capsys.readouterr().out

    return run


def test_this_machine(said):
    assert f"  jax               {jax.__version__}\n" in said()
    assert "devices           2 × cpu" in said()


def test_a_run(said, run_folder, tmp_path, monkeypatch):
    """What differs from the defaults comes first; the last metrics are those of the last step."""
    files = sorted(run_folder.rglob("*"))
    told = said(str(run_folder))
    assert told.startswith("RunConfig, 4 replicas: all 12 steps are done\n")
    own, _, rest = told.partition("the others:")
    assert "  model.d_model           16\n" in own
    assert "  model.residual  " in rest
    assert "model.d_model" not in rest
    assert "replica 3: step 12, loss " in rest
    assert "validation_loss" in rest
    assert sorted(run_folder.rglob("*")) == files
    shutil.copytree(run_folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "00000012")
    assert "8 of 12 steps are saved; `transformer train --resume" in said(str(tmp_path / "run"))
    stored = dataclasses.replace(read_identity(tmp_path / "run"), initial="0")
    with monkeypatch.context() as patch:
        patch.setattr(info, "read_identity", lambda folder: stored)
        assert "8 of 12 steps are saved; the command that began it goes on" in said(str(tmp_path / "run"))
    assert way_on(tmp_path, "InContextRegressionRun").startswith("T.train(")
    with pytest.raises(ConfigError, match=r"holds no config\.json of a run"):
        said(str(tmp_path))


def test_a_study(said, run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "cells" / "0123456789abcdef")
    write_sealed(tmp_path / "plan.json", {"plan": {"arms": {"pre": {}, "post": {}}}})
    told = said(str(tmp_path))
    assert told.startswith(f"a study of pre, post; `transformer report {tmp_path}` prints its results\n")
    assert "  0123456789abcdef  all 12 steps are done" in told
    later = {"plan": {"arms": {"pre": {}, "sandwich": {}}}}
    write_sealed(tmp_path / "plan.json", {"plan": {"arms": {"pre": {}, "post": {}}}, "changes": [later]})
    assert "a study of pre, sandwich;" in info.of_study(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"plan\.json: is not the plan of a study"):
        said(str(tmp_path))
