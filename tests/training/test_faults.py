"""What a user sees when a run is stopped, its folder is taken, its disk is full, or its numbers are wrong."""

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import chex
import jax
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.files import WriteError
from transformer.core.folders import file_names, locked
from transformer.data.corpus import load_corpus
from transformer.data.dataset import check_batches
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import VisionConfig
from transformer.norms.norm import LayerNorm
from transformer.objectives.classes import Classification
from transformer.objectives.pairs import SequenceToSequence
from transformer.runs.config import Replica
from transformer.runs.data import TextConfig
from transformer.runs.schedules import ConstantRate
from transformer.runs.tokenizers import Byte
from transformer.training import checkpoint
from transformer.training.checkpoint import CheckpointError, Notes
from transformer.training.loop import train
from transformer.training.signals import Interrupted, StopRequest
from transformer.training.workdir import Identity, held_for_run, identity

NOTES = Notes(10, "0", 0, 0.0, {})
REPLICAS = (Replica(seed=0), Replica(seed=1, learning_rate=3e-3))


@pytest.fixture
def config(config):
    return config.replace(steps_per_dispatch=2, checkpoint_every=4, evaluate_every=6)


@dataclass(frozen=True)
class Eventful:
    """Data whose batch of a step has a side effect, or is another one, for the first replica."""

    corpus: object
    step: int
    event: object

    def __getattr__(self, name):
        return getattr(self.corpus, name)

    def train_batches(self, config, seed):
        batches, data = self.corpus.train_batches(config, seed), self

        class Batches:
            def __getitem__(self, step):
                batch = batches[step]
                return (data.event(batch) or batch) if (step, seed) == (data.step, 0) else batch

        return Batches()


def left(workdir):
    """What a run leaves: the metrics, and the newest checkpoint."""
    steps = checkpoint.steps(workdir / "checkpoints")
    return (workdir / "metrics.jsonl").read_text(), steps


@pytest.fixture
def whole(config, corpus, tmp_path):
    """A run without faults."""
    outcome = train(config, REPLICAS, corpus, tmp_path / "whole")
    return outcome, *left(tmp_path / "whole")


def assert_goes_on_to(whole, config, corpus, workdir):
    outcome = train(config, REPLICAS, corpus, workdir, when_not_empty="resume")
    assert left(workdir) == whole[1:]
    np.testing.assert_array_equal(outcome.validation_loss, whole[0].validation_loss)
    jax.tree.map(np.testing.assert_array_equal, outcome.all_params, whole[0].all_params)


def ask_to_stop(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    return {}


@dataclass(frozen=True)
class Stopping(LayerNorm):
    """A norm that has the process asked to stop when it is first compiled."""

    name = "stopping"
    compiled: ClassVar[list[bool]] = []

    def __call__(self, x_BLD, params):
        if not self.compiled:
            self.compiled.append(True)
            ask_to_stop()
        return super().__call__(x_BLD, params)


@pytest.mark.parametrize(
    ("when", "saved"),
    [("in a step", 8), ("in an evaluation", 6), ("in the last step", 12), ("in the last evaluation", 12)],
)
def test_a_request_to_stop_saves(config, corpus, tmp_path, whole, when, saved):
    """The step reached is saved and named, and the same command goes on as if nothing had been."""
    at_step = {"in a step": 6, "in the last step": 10}.get(when)
    evaluations = iter([when == "in an evaluation", when == "in the last evaluation"])
    data = corpus if at_step is None else Eventful(corpus, at_step, ask_to_stop)
    observe = (lambda _: ask_to_stop() if next(evaluations) else {}) if at_step is None else None
    with pytest.raises(
        Interrupted, match=f"step {saved} is saved in .*; the same command with --resume continues"
    ) as at:
        train(config, REPLICAS, data, tmp_path / "run", observe=observe)
    assert at.value.__notes__ == ["In Python: when_not_empty='resume'"]
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == saved
    if observe is not None:  # its lines hold what the observer measured
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")
    else:
        assert_goes_on_to(whole, config, corpus, tmp_path / "run")


def test_a_request_to_stop_in_the_first_compilation(config, corpus, tmp_path):
    """The first dispatch is still done, so that there is something to save."""
    with pytest.raises(Interrupted, match="step 2 is saved"):
        train(config.replace({"model.norm": Stopping()}), REPLICAS, corpus, tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [2]


HURRY = """
import os, signal, sys, time
from transformer.training.signals import TWICE, StopRequest
with StopRequest() as request:
    os.kill(os.getpid(), signal.SIGTERM)
    assert request.requested
    os.kill(os.getpid(), signal.SIGTERM)  # as `timeout` does
    print("asked once", flush=True)
    time.sleep(TWICE + 0.1)
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    print("not reached")
"""


def test_a_request_reaches_what_goes_on_around():
    """The loop over several runs, though the run it came to was at its end."""
    with StopRequest() as outer, StopRequest() as inner:
        ask_to_stop()
    assert inner.requested
    assert outer.requested


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_request_ends_at_once(number):
    done = subprocess.run([sys.executable, "-c", HURRY, number.name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + number, "asked once\n"), done.stderr


@contextlib.contextmanager
def largest_file(size):
    """No file may grow beyond `size` bytes: what a full disk does, for one process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_in_a_checkpoint(tmp_path, capfd):
    state = {"a": jax.random.normal(jax.random.key(0), 100_000)}
    checkpoint.save(tmp_path, 10, state, NOTES)
    with largest_file(100_000), pytest.raises(WriteError, match=r"00000020: .*; [\d,]+ bytes are free there") as error:
        checkpoint.save(tmp_path, 20, state, NOTES)
    assert "\n" not in str(error.value)
    assert "Traceback" not in "".join(capfd.readouterr())
    assert [p.name for p in tmp_path.iterdir()] == ["00000010"]
    assert checkpoint.restore(tmp_path, state)[1] == NOTES


def test_a_full_disk_elsewhere_keeps_its_name(config, corpus, tmp_path):
    """What a function of one's own writes is not the file of metrics."""

    def copy(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "/elsewhere/copy.npz")

    with pytest.raises(OSError, match=r"/elsewhere/copy.npz"):
        train(config, REPLICAS, corpus, tmp_path / "run", on_steps=copy)


def test_a_full_disk_in_the_metrics(config, corpus, tmp_path, whole):
    """With space again, the same command goes on from the last checkpoint."""
    with contextlib.ExitStack() as stack:
        metrics = tmp_path / "run" / "metrics.jsonl"

        def fill(batch):
            stack.enter_context(largest_file(metrics.stat().st_size + 20))

        with pytest.raises(WriteError, match=rf"^{re.escape(str(metrics))}: .*; [\d,]+ bytes are free there"):
            train(config, REPLICAS, Eventful(corpus, 4, fill), tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [4]
    assert_goes_on_to(whole, config, corpus, tmp_path / "run")


def test_a_damaged_checkpoint_takes_no_place_from_the_next_one(config, corpus, tmp_path):
    """That of step 12, where the run goes on from 8 and is stopped at 10."""
    folder = tmp_path / "run" / "checkpoints"
    train(config, REPLICAS, corpus, tmp_path / "run")
    files = [path for path in (folder / "00000012").rglob("*") if path.is_file()]
    os.truncate(max(files, key=lambda path: path.stat().st_size), 1)
    stopping = Eventful(corpus, 9, ask_to_stop)
    with pytest.warns(UserWarning, match="00000012 is damaged"), pytest.raises(Interrupted):
        train(config, REPLICAS, stopping, tmp_path / "run", when_not_empty="resume")
    assert checkpoint.steps(folder) == [8, 10]


def test_metrics_that_were_lost_are_an_error(config, corpus, tmp_path):
    """They are not filled up with zeros."""
    train(config, REPLICAS, corpus, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    os.truncate(metrics, 100)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl has lost lines"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")
    assert metrics.stat().st_size == 100


def test_a_folder_in_place_of_the_metrics_is_an_error(config, corpus, tmp_path):
    """It may have as many bytes as the lines had."""
    train(config, REPLICAS, corpus, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.unlink()
    metrics.mkdir()
    for number in range(400):
        (metrics / f"{number:0>200}").touch()
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl has lost lines"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")


HOLD = """
import sys
from pathlib import Path
from transformer.core.folders import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_in_one_folder(config, corpus, tmp_path):
    """The second is refused with the process that holds it, and changes nothing."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=rf"workdir: .*run is in use by process {other.pid} on "):
            train(config, REPLICAS, corpus, tmp_path / "run")
        assert file_names(tmp_path / "run") == set()
        other.kill()
    with locked(tmp_path / "run"), locked(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_written(config, corpus, tmp_path, monkeypatch):
    """A parent that is a file, and a read-only folder: the superuser, who may write there, meets an error like it."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"workdir: .*run cannot be written: Not a directory"):
        train(config, REPLICAS, corpus, tmp_path / "file" / "run")
    if os.geteuid():
        tmp_path.chmod(0o500)
    else:
        monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(ConfigError, match=r"workdir: .*run cannot be written: Permission denied"):
        train(config, REPLICAS, corpus, tmp_path / "run")
    tmp_path.chmod(0o700)


def refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def make(workdir, config, corpus, replicas=REPLICAS):
    with held_for_run(workdir, identity(corpus.complete(config), replicas, corpus), "resume", {}):
        pass


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"model.num_layers": 3}, r"run\.model\.num_layers"),
        ({"model.norm": "rmsnorm"}, r"run\.model\.norm\..*variant"),
        ({"model.dtype": "bfloat16"}, r"run\.model\.dtype"),
        ({"batch_size": 8}, r"run\.batch_size"),
        ({"steps": 11}, r"run\.steps; its steps, 12, may be raised, not lowered"),
        ({"steps": 20, "batch_size": 8}, r"run\.batch_size"),
    ],
)
def test_resuming_another_run_is_refused(config, corpus, tmp_path, changes, fields):
    """With the fields that differ; the folder stays as it was."""
    make(tmp_path / "run", config, corpus)
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(ConfigError, match=rf"holds another run, which differs in {fields}$"):
        make(tmp_path / "run", config.replace(changes), corpus)
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_resuming_with_another_seed_text_or_tokenizer_is_refused(config, corpus, tmp_path):
    make(tmp_path / "run", config, corpus)
    with pytest.raises(ConfigError, match=r"differs in replicas$"):
        make(tmp_path / "run", config, corpus, (Replica(seed=2), REPLICAS[1]))
    (tmp_path / "other.txt").write_text("abacabad" * 41)
    other = load_corpus(TextConfig(path=str(tmp_path / "other.txt")))
    with pytest.raises(ConfigError, match=r"differs in data, run\.data\.path$"):
        make(tmp_path / "run", config, other)
    byte = load_corpus(TextConfig(path=str(tmp_path / "text.txt"), tokenizer=Byte()))
    with pytest.raises(ConfigError, match=r"differs in data, run\.data\.tokenizer\.variant, run\.model\.vocab_size$"):
        make(tmp_path / "run", config.replace({"model.vocab_size": 256}), byte)


def test_a_run_is_not_continued_in_another_order_of_its_rows(config, corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr("transformer.training.workdir.ORDER", None)
        make(tmp_path / "run", config, corpus)
    with pytest.raises(ConfigError, match=r"holds another run, which differs in order$"):
        make(tmp_path / "run", config, corpus)


def test_the_mean_of_a_longer_run_has_no_steps_before_its_last(config, corpus, tmp_path):
    config = config.replace({"optimizer.schedule": ConstantRate()}, steps=12, average_last=10)
    train(config, data=corpus, workdir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"are not among the last 10 of 14; give at least 22$"):
        train(config.replace(steps=14), data=corpus, workdir=tmp_path / "run", when_not_empty="resume")
    config = config.replace(steps=22)
    longer = train(config, data=corpus, workdir=tmp_path / "run", when_not_empty="resume")
    whole = train(config, data=corpus, workdir=tmp_path / "whole")
    chex.assert_trees_all_equal(longer.all_params, whole.all_params)


def test_a_run_may_be_given_more_steps(config, corpus, tmp_path, capsys):
    """It goes on where it ended; each step is there once."""
    train(config, REPLICAS, corpus, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    outcome = train(config.replace(steps=16), REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")
    assert "from 12 to 16 steps" in capsys.readouterr().err
    after = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert after.startswith(before.rpartition('{"step": 12, "replica": 0, "validation_loss"')[0])
    assert [re.findall(r'"step": (\d+), "replica": 0, "loss"', text)[-1] for text in (before, after)] == ["12", "16"]
    assert outcome.config.steps == 16
    with pytest.raises(ConfigError, match=r"differs in run\.steps; its steps, 16, may be raised, not lowered$"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")


def test_a_start_that_was_killed_is_begun_again(config, corpus, tmp_path):
    """Whatever of the first files was written."""
    for names in ((), (".config.json.partial",), ("tokenizer.json", ".lock"), ("tokenizer.json", ".x.json.partial")):
        workdir = tmp_path / f"run {len(names)} {names}".replace("/", "")
        workdir.mkdir()
        for name in names:
            (workdir / name).touch()
        with held_for_run(workdir, Identity({}, [], "0"), "resume", {"tokenizer.json": "{}"}):
            assert {"config.json", "environment.json", "tokenizer.json"} == file_names(workdir)


@pytest.mark.parametrize("token", [-1, 4])
def test_an_id_out_of_range_is_found_before_its_step(config, corpus, tmp_path, token):
    """With the step and the place in its batch; what was done before is saved as always."""

    def spoil(batch):
        tokens = batch["tokens"].copy()
        tokens[2, 3] = token
        return {"tokens": tokens}

    message = rf"batch of step 7: tokens has {token} at \(2, 3\), not in \[0, 4\)"
    with pytest.raises(ConfigError, match=message):
        train(config, REPLICAS, Eventful(corpus, 7, spoil), tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [4]


def test_a_label_out_of_range():
    """The same for classes and for both sides of a translation; pixels are no ids."""
    images = {"inputs": np.full((1, 2, 4, 8, 8, 1), 99.0), "labels": np.zeros((1, 2, 4), np.int32)}
    images["labels"][0, 1, 3] = 10
    limits = Classification().limits(VisionConfig(num_classes=10))
    with pytest.raises(ConfigError, match=r"batch of step 41: labels has 10 at \(3,\), not in \[0, 10\)"):
        check_batches(images, limits, 40)
    limits = SequenceToSequence().limits(EncoderDecoderConfig(vocab_size=5, source_vocab_size=7))
    pair = {"source": np.full((1, 1, 2, 3), 6), "target": np.full((1, 1, 2, 3), 4)}
    check_batches(pair, limits, 0)
    for name in pair:
        with pytest.raises(ConfigError, match=rf"batch of step 0: {name} has"):
            check_batches({**pair, name: pair[name] + 1}, limits, 0)
