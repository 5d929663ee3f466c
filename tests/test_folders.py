"""Folders of runs and studies with a fault in any of their files: the same numbers bit for bit, or one line.

FUZZ=1000 python -m pytest tests/test_folders.py     draws of each kind; 4 by default
"""

import os
import random
import shutil
import signal
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.study.conftest import tiny
from transformer.core.errors import ConfigError
from transformer.data.corpus import load_corpus
from transformer.norms.norm import RMSNorm
from transformer.runs.config import Replica
from transformer.study.analyse import read_study
from transformer.study.running import StudyError
from transformer.study.study import Study
from transformer.training.checkpoint import CheckpointError
from transformer.training.loop import train
from transformer.training.metrics import read_metrics
from transformer.training.signals import Interrupted

DRAWS = int(os.environ.get("FUZZ", "4"))
FEW = settings(max_examples=DRAWS, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
"""Seconds a draw, of which a smaller one says no more: nothing is shrunk."""
SEEDS = st.integers(0, 2**32 - 1)
"""The files and their lengths differ from folder to folder: hypothesis draws no more than this."""
REPLICAS = (Replica(seed=0), Replica(seed=1))
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # it would hide what failed


def fault(folder: Path, rng) -> str:
    """Do something to one file of a folder; returns what and to which."""
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.name != ".lock"))
    kind = rng.choice(["flip", "cut", "empty", "delete", "folder", "link", "more", "other"])
    whole = path.read_bytes() if path.is_file() else b""
    if kind in ("delete", "folder", "link") or path.is_dir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(folder / "nowhere")
    elif whole and kind != "delete":
        at = rng.randrange(len(whole))
        path.write_bytes(
            {
                "flip": whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :],
                "cut": whole[:at],
                "empty": b"",
                "more": whole + rng.randbytes(5),
                "other": rng.choice([b"[]", b"null", b"5", b'"x"', b"{}"]),
            }[kind]
        )
    return f"{kind} {path.relative_to(folder)}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(config, data, a folder that was stopped with two checkpoints, what a run without faults leaves)."""
    folder = tmp_path_factory.mktemp("run")
    base = tiny(folder).replace(checkpoint_every=4, evaluate_every=5, steps=12)
    corpus = load_corpus(base.data)

    def stop(params):
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    with pytest.raises(Interrupted):
        train(base, REPLICAS, corpus, folder / "stopped", observe=stop)
    whole = train(base, REPLICAS, corpus, folder / "whole")
    return base, corpus, folder / "stopped", numbers(whole, folder / "whole")


def numbers(outcome, folder):
    lines = [{name: value for name, value in line.items() if name != "seconds"} for line in read_metrics(folder)]
    return lines, [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(outcome.all_params)]


@FEW
@given(seed=SEEDS)
def test_a_run_goes_on_to_the_same_bits_or_says_why_not(run, tmp_path_factory, seed):
    base, corpus, stopped, whole = run
    folder = shutil.copytree(stopped, tmp_path_factory.mktemp("draw") / "run")
    what = fault(folder, random.Random(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = train(base, REPLICAS, corpus, folder, when_not_empty="resume")
        except (ConfigError, CheckpointError) as error:
            said = str(error)
        else:
            said = "the same"
            assert numbers(outcome, folder) == whole, what
    assert len(said.splitlines()) == 1, what


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """(study, data, the folder of it finished, its numbers)."""
    folder = tmp_path_factory.mktemp("study")
    base = tiny(folder)
    made = Study("norms", base, {"a": {}, "b": {"model.norm": RMSNorm()}}, seeds=2, noise_floor=False)
    corpus = load_corpus(base.data)
    report = made.run(folder / "study", data=corpus, say=str)
    return made, corpus, folder / "study", values(report)


def values(report):
    return {arm.name: np.array(arm.values).tolist() for arm in report.arms}


@FEW
@given(seed=SEEDS)
def test_a_study_is_read_and_goes_on_to_the_same_numbers_or_says_why_not(study, tmp_path_factory, seed):
    """When it is only read, an arm with a damaged run has failed, and the others have their numbers.

    A run that is computed again without those that it shared a program with has its numbers up to rounding.
    """
    made, corpus, finished, whole = study
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("draw") / "study")
    what = fault(folder, random.Random(seed))
    for read, rounding in ((lambda: read_study(folder), 0), (lambda: made.run(folder, data=corpus, say=str), 1e-6)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                report = read()
            except (ConfigError, CheckpointError, StudyError) as error:
                said = str(error)
            else:
                said = "the same"
                found = values(report)
                for name, numbers in found.items():
                    np.testing.assert_allclose(numbers, whole[name], rtol=rounding, err_msg=what)
                assert found.keys() | report.failed.keys() == whole.keys(), what
        assert len(said.splitlines()) == 1, what
