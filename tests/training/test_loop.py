"""A run in a folder: what it writes, what it refuses, and that being killed does not change a bit of it."""

import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
import warnings

import chex
import jax
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.arrays import arrays
from transformer.data.corpus import load_corpus
from transformer.data.dataset import stack_batches
from transformer.runs.config import Replica, grid
from transformer.runs.data import TextConfig
from transformer.runs.mesh import HostsConfig, MeshConfig
from transformer.training import checkpoint, loop
from transformer.training.loop import _Run, train
from transformer.training.metrics import read_metrics
from transformer.training.program import make_program
from transformer.training.signals import StopRequest
from transformer.training.stored import load_run

REPLICAS = (Replica(seed=0), Replica(seed=1, learning_rate=3e-3))

SCRIPT = """
import sys
from pathlib import Path
from experiments import cli
from transformer.core import runtime
from transformer.data.corpus import load_corpus
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.runs.config import Replica, RunConfig
from transformer.runs.data import TextConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.training.loop import _Run, train

def main():
    folder = Path(sys.argv[1])
    runtime.start(cache=folder / "cache")
    config = RunConfig(
        model=ModelConfig(
            vocab_size=4, max_length=8, num_layers=1, d_model=16, mixer=Attention(num_heads=2), dropout=0.1
        ),
        data=TextConfig(path=str(folder / "text.txt")),
        optimizer=OptimizerConfig(learning_rate=1e-2), steps=3000, batch_size=4, steps_per_dispatch=5,
        evaluate_every=250, checkpoint_every=100,
    )
    replicas = (Replica(seed=0), Replica(seed=1, learning_rate=3e-3))
    train(config, replicas, load_corpus(config.data), Path(sys.argv[2]), when_not_empty="resume")

cli.main(main)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("abacabad" * 40)
    return tmp_path


def test_what_is_not_said_is_one_seed_of_the_own_data_in_a_new_folder(config, corpus, tmp_path, monkeypatch):
    """The data is that of the config, the folder is named by the time; several processes need one that they share."""
    monkeypatch.chdir(tmp_path)
    config = corpus.complete(config)
    outcome = train(config)
    assert outcome.replicas == (Replica(seed=0),)
    (made,) = (tmp_path / "results").iterdir()
    assert load_run(made).config == config
    assert made.name.startswith("20")
    with pytest.raises(ConfigError, match=r"^train: workdir is missing, the folder that all processes share$"):
        train(config, hosts=HostsConfig(address="localhost:1", count=2, index=0))


def start(folder, workdir):
    command = [sys.executable, "-c", SCRIPT, str(folder), str(workdir)]
    with (folder / "stderr.txt").open("w") as said:
        return subprocess.Popen(command, stderr=said)


def wait_for_progress(process, workdir, lines):
    """Until metrics.jsonl has grown by some lines, or the process has ended."""
    path = workdir / "metrics.jsonl"
    before = path.read_bytes().count(b"\n") if path.exists() else 0
    while process.poll() is None:
        now = path.read_bytes().count(b"\n") if path.exists() else 0
        if abs(now - before) >= lines:
            return
        time.sleep(0.002)


def final_arrays(workdir):
    """The bytes of the newest checkpoint, array by array."""
    import orbax.checkpoint.experimental.v1 as ocp

    step = checkpoint.steps(workdir / "checkpoints")[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # orbax: no shardings were given
        arrays = ocp.load(str(workdir / "checkpoints" / f"{step:08d}" / "state"))
    return step, {name: np.asarray(a).tobytes() for name, a in arrays.items()}


@pytest.mark.release
def test_kills_at_random_moments_change_no_bit(folder):
    """SIGKILL five times, then the same command to the end."""
    whole, killed = folder / "whole", folder / "killed"
    process = start(folder, whole)
    assert process.wait() == 0, (folder / "stderr.txt").read_text()
    rng = random.Random(0)
    kills = 0
    while kills < 5:
        process = start(folder, killed)
        wait_for_progress(process, killed, lines=rng.randrange(1, 160))
        time.sleep(rng.random() * 0.05)
        assert process.poll() is None, "the run ended before it was killed five times"
        process.kill()
        process.wait()
        kills += 1
    process = start(folder, killed)
    assert process.wait() == 0, (folder / "stderr.txt").read_text()
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert final_arrays(killed) == final_arrays(whole)
    assert not list((killed / "checkpoints").glob(".*"))


def test_sigterm_saves_and_says_how_to_go_on(folder):
    workdir = folder / "run"
    process = start(folder, workdir)
    wait_for_progress(process, workdir, lines=20)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    said = (folder / "stderr.txt").read_text()
    step = checkpoint.steps(workdir / "checkpoints")[-1]
    assert f"step {step} is saved in {workdir}; the same command with --resume continues\n" in said
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == step


def test_a_finished_run_is_not_run_again(config, corpus, tmp_path):
    first = train(config, REPLICAS, corpus, str(tmp_path / "run"))
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    second = train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")
    np.testing.assert_array_equal(first.validation_loss, second.validation_loss)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize(("name", "other"), [("cores", 77), ("processor", "Another 3000")])
def test_going_on_with_another_processor_is_said(config, corpus, tmp_path, name, other):
    """The number of cores decides how sums are cut, and so their rounding."""
    train(config, REPLICAS, corpus, tmp_path / "run")
    path = tmp_path / "run" / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: other}))
    with pytest.warns(match=rf"continues with other {name}: the same up to rounding"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")


def test_going_on_with_other_versions_is_said(config, corpus, tmp_path):
    train(config, REPLICAS, corpus, tmp_path / "run")
    path = tmp_path / "run" / "environment.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"packages": before["packages"] | {"jax": "0.0.1"}}))
    with pytest.warns(match=r"continues with other packages.jax: the same up to rounding"):
        train(config, REPLICAS, corpus, tmp_path / "run", when_not_empty="resume")
    assert json.loads(path.read_text()) == before


def test_what_a_run_writes(config, corpus, tmp_path):
    workdir = tmp_path / "run"
    outcome = train(config.replace(evaluate_every=6), REPLICAS, corpus, workdir)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    training = [(line["step"], line["replica"]) for line in lines if "loss" in line]
    assert training == [(step, i) for step in (5, 6, 10, 12) for i in (0, 1)]
    assert [line["step"] for line in lines if "validation_loss" in line] == [6, 6, 12, 12]
    assert lines[-1]["validation_loss"] == outcome.validation_loss[1]
    assert lines[-3]["learning_rate"] < 3e-3
    environment = json.loads((workdir / "environment.json").read_text())
    assert environment["packages"]["jax"] == jax.__version__
    assert json.loads((workdir / "config.json").read_text())["replicas"][1]["learning_rate"] == 3e-3


def test_a_replica_is_trained_on_the_batches_of_its_own_seed(config, corpus, tmp_path):
    replicas = (Replica(seed=0), Replica(seed=1), Replica(seed=0, learning_rate=3e-3))
    how = {"observe": None, "strict": False, "stop": StopRequest(), "on_steps": None}
    run = _Run(config, replicas, corpus, tmp_path, make_program(config, replicas), **how)
    one, other, again = stack_batches(run.batches, 0, 2)["tokens"]
    expected = [np.stack([corpus.train_batches(config, seed)[step]["tokens"] for step in (0, 1)]) for seed in (0, 1)]
    np.testing.assert_array_equal([one, other, again], [*expected, expected[0]])
    assert (one != other).any()


def test_the_validation_loss_is_the_mean_over_the_split(config, corpus, tmp_path):
    outcome = train(config, REPLICAS, corpus, tmp_path / "run")
    assert outcome.loss_by_position.shape == (2, 8)
    labels = len(corpus.validation) - 1
    per_position = np.array([len(range(i, labels, 8)) for i in range(8)])
    mean = (outcome.loss_by_position * per_position).sum(-1) / labels
    np.testing.assert_allclose(mean, outcome.validation_loss, rtol=1e-6)
    assert outcome.validation_loss.max() < np.log(4)


def test_a_held_out_part_of_which_nothing_counts_is_no_number(config, tmp_path):
    data = arrays(np.arange(90).reshape(10, 9) % 4)
    unscored = {**data.validation, "weights": np.zeros_like(data.validation["weights"])}
    message = r"^validation: no label counts for next_token; hold out a larger part$"
    with pytest.raises(ConfigError, match=message):
        train(config, REPLICAS, dataclasses.replace(data, validation=unscored), tmp_path / "run")


def test_batches_that_devices_do_not_divide_sum_the_same(config, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("transformer.data.corpus.EVALUATION_BATCH", 3)
    meshes = {name: MeshConfig(replica=1, data=data) for name, data in (("one", 1), ("two", 2))}
    one, two = (
        train(config.replace(steps=2), REPLICAS, corpus, tmp_path / name, mesh=mesh) for name, mesh in meshes.items()
    )
    for alone, shared in zip(one.by_batch, two.by_batch, strict=True):
        assert alone.shape[1] > 1
        np.testing.assert_allclose(alone, shared, rtol=1e-5)


def test_what_a_run_reports_is_what_its_parameters_do(config, tmp_path, monkeypatch):
    """Over the split and over each of its batches, label by label, and as the last lines of its metrics."""
    monkeypatch.setattr("transformer.data.corpus.EVALUATION_BATCH", 2)
    path = tmp_path / "text.txt"
    path.write_text("abcd" * 94 + "abdc" + "abcd" * 5)  # in the part that is held out one turn is another
    corpus = load_corpus(TextConfig(path=str(path)))
    outcome = train(config.replace(steps=40), REPLICAS, corpus, tmp_path / "run")
    assert 0 < outcome.exact_match[0] < outcome.accuracy[0] < 1
    split = corpus.validation_batches(outcome.config)
    labels, weights = split["tokens"][..., 1:], split["weights"]
    assert len(labels) > 1
    lines = read_metrics(tmp_path / "run")[-2:]
    for i in range(2):
        logs = jax.jit(jax.vmap(lambda *args: jax.nn.log_softmax(outcome.apply(*args)), (None, 0)))
        logs = np.asarray(logs(outcome.params(i), split["tokens"][..., :-1]))
        losses = -np.take_along_axis(logs, labels[..., None], -1)[..., 0] * weights
        hits, real = (logs.argmax(-1) == labels) * weights, weights.sum(-1) > 0
        right = real & (hits.sum(-1) == weights.sum(-1))
        sums = (losses.sum((1, 2)), weights.sum((1, 2)), hits.sum((1, 2)), right.sum(1), real.sum(1))
        for measured, expected in zip(outcome.by_batch, sums, strict=True):
            np.testing.assert_allclose(measured[i], expected, rtol=1e-5)
        expected = {
            "validation_loss": losses.sum() / weights.sum(),
            "validation_accuracy": hits.sum() / weights.sum(),
            "validation_exact_match": right.sum() / real.sum(),
        }
        found = [outcome.validation_loss[i], outcome.accuracy[i], outcome.exact_match[i]]
        np.testing.assert_allclose(found, list(expected.values()), rtol=1e-5)
        assert lines[i] == {"step": 40, "replica": i} | {k: pytest.approx(v, rel=1e-5) for k, v in expected.items()}
        np.testing.assert_allclose(outcome.loss_by_position[i], losses.sum((0, 1)) / weights.sum((0, 1)), rtol=1e-5)


def test_a_line_of_a_dispatch_has_the_means_of_its_steps(config, corpus, tmp_path):
    """Of each replica; with the learning rate of the last of them."""
    replicas = (REPLICAS[0], Replica(seed=1, learning_rate=3e-3, warmup_steps=9))
    train(config, replicas, corpus, tmp_path / "run")
    lines = read_metrics(tmp_path / "run")
    program = make_program(config, replicas)
    batches = [corpus.train_batches(config, replica.seed) for replica in replicas]
    _, metrics = program.train(program.init(), stack_batches(batches, 0, 5))
    rates = program.learning_rates()
    for i in range(2):
        assert lines[i] == {
            "step": 5,
            "replica": i,
            "loss": pytest.approx(float(metrics["loss"][i].mean()), rel=1e-5),
            "grad_norm": pytest.approx(float(metrics["grad_norm"][i].mean()), rel=1e-5),
            "learning_rate": pytest.approx(float(rates[i, 4]), rel=1e-6),
        }
        assert lines[i + 4]["learning_rate"] == pytest.approx(float(rates[i, 11]), rel=1e-6)


def test_a_diverged_replica_is_reported_and_leaves_the_others_alone(config, corpus, tmp_path):
    replicas = (REPLICAS[0], Replica(seed=0, learning_rate=1e30), REPLICAS[1], REPLICAS[1])
    config = config.replace({"optimizer.warmup_steps": 0, "optimizer.clip_norm": None})
    outcome = train(config, replicas, corpus, tmp_path / "run")
    for measured in (outcome.validation_loss, outcome.accuracy, outcome.exact_match):
        assert np.isfinite(measured).tolist() == [True, False, True, True]
    assert outcome.diverged_at[1] > 0
    assert (outcome.diverged_at[[0, 2, 3]] == -1).all()
    assert np.isfinite(outcome.validation_loss[[0, 2, 3]]).all()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    skipped = [sum(line.get("skipped", 0) for line in lines if line["replica"] == i) for i in range(4)]
    assert skipped == [0, config.steps - outcome.diverged_at[1], 0, 0]
    curve = outcome.curve("skipped")
    np.testing.assert_array_equal(curve.values_RS.sum(1), skipped)
    np.testing.assert_array_equal(curve.steps_S, outcome.curve("loss").steps_S)


def test_a_diverged_replica_has_no_loss_though_its_parameters_are_finite(config, corpus, tmp_path):
    """Here none of the updates is applied."""
    config = config.replace({"optimizer.skip_limit": 1, "optimizer.skip_above": 1e-9})
    outcome = train(config, REPLICAS, corpus, tmp_path / "run")
    assert outcome.diverged_at.tolist() == [1, 1]
    assert np.isfinite(outcome.loss_by_position).all()
    assert np.isnan(outcome.validation_loss).all()
    for name in ("loss", "validation_loss"):  # and its curve ends, in a picture too
        assert np.isnan(outcome.curve(name).values_RS).all()


def test_what_is_observed_is_a_number_a_replica_and_rows_are_replicas(config, corpus, tmp_path):
    with pytest.raises(
        ConfigError, match=r"^observe: norm has the shape \(\) and is not a number for each of 2 replicas"
    ):
        train(config, REPLICAS, corpus, tmp_path / "wrong", observe=lambda params: {"norm": np.float32(1)})
    for name in ("loss", "grad_norm", "validation_loss"):
        with pytest.raises(ConfigError, match=f"^observe: {name} is measured already; give it another name$"):
            train(config, REPLICAS, corpus, tmp_path / name, observe=lambda params, name=name: {name: np.ones(2)})
    with pytest.raises(ConfigError, match=r"^train: observe is a list, and a function is needed$"):
        train(config, REPLICAS, corpus, tmp_path / "list", observe=[1])  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "list").exists()
    with pytest.raises(ConfigError, match=r"^observe: it returned NoneType, not arrays \(R,\) by name$"):
        train(config, REPLICAS, corpus, tmp_path / "none", observe=lambda params: None)  # pyright: ignore[reportArgumentType]
    outcome = train(config, REPLICAS, corpus, tmp_path / "run", observe=lambda params: {"one": np.ones(2)})
    rows = outcome.rows()
    assert [row["seed"] for row in rows] == [each.seed for each in REPLICAS]
    assert [row["validation_loss"] for row in rows] == outcome.validation_loss.tolist()
    assert rows[0].keys() >= {"learning_rate", "accuracy", "exact_match", "diverged_at"}
    assert load_run(tmp_path / "run").rows()[1]["validation_loss"] == rows[1]["validation_loss"]


def test_a_rule_that_keeps_a_mean_is_judged_by_it_on_the_way_too(config, corpus, tmp_path):
    config, seen = config.replace({"optimizer.rule": "schedule_free"}, evaluate_every=5), []

    def observe(params):
        seen.append(jax.device_get(params))
        return {}

    outcome = train(config, REPLICAS, corpus, tmp_path / "run", observe=observe)
    chex.assert_trees_all_equal(seen[-1], jax.device_get(outcome.all_params))
    program = make_program(config, REPLICAS)
    batches = [corpus.train_batches(config, r.seed) for r in REPLICAS]
    state, _ = program.train(program.init(), stack_batches(batches, 0, 5))
    chex.assert_trees_all_equal(seen[0], state.evaluated)
    table, parameters = seen[0]["embedding"]["table"], state.params["embedding"]["table"]
    assert np.abs(table - parameters).max() > 1e-3


def test_folders_that_are_not_empty(config, corpus, tmp_path):
    train(config, REPLICAS, corpus, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"not empty; --resume continues it, --overwrite starts again") as refused:
        train(config, REPLICAS, corpus, tmp_path / "run")
    assert refused.value.__notes__ == ["In Python: when_not_empty='resume' or when_not_empty='overwrite'"]
    other = config.replace({"model.feed_forward.d_ff": 32, "steps": config.steps + 1})  # more steps are no difference
    with pytest.raises(ConfigError, match=r"differs in replicas, run\.model\.feed_forward\.d_ff$"):
        train(other, REPLICAS[:1], corpus, tmp_path / "run", when_not_empty="resume")
    train(config, REPLICAS[:1], corpus, tmp_path / "run", when_not_empty="overwrite")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for way in ("resume", "overwrite"):
        with pytest.raises(ConfigError, match=r"holds no config\.json"):
            train(config, REPLICAS, corpus, tmp_path / "mine", when_not_empty=way)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_hook_after_every_dispatch(config, corpus, tmp_path):
    """With the steps done and the state of all replicas, and the same numbers as without it."""
    seen = {}

    def keep(step, state):
        seen[step] = (np.asarray(state.step).tolist(), jax.tree.map(np.array, state.params))

    hooked = train(config, REPLICAS, corpus, tmp_path / "hooked", on_steps=keep)
    assert {step: done for step, (done, _) in seen.items()} == {5: [5, 5], 10: [10, 10], 12: [12, 12]}
    chex.assert_trees_all_equal(seen[12][1], hooked.all_params)


def test_a_warm_up_that_never_ends_is_said(config, corpus, tmp_path, capsys):
    """Of any replica; one that ends is not."""
    line = "warm-up takes 2 steps of 2, so the learning rate never reaches its peak"
    for steps, warm_up, said in ((3, 2, False), (2, 2, True)):
        replicas = (Replica(warmup_steps=1), Replica(seed=1, warmup_steps=warm_up))
        train(config.replace(steps=steps), replicas, corpus, tmp_path / str(steps))
        assert (f"{tmp_path / str(steps)}: {line}\n" in capsys.readouterr().err) == said


def test_a_vocabulary_of_which_most_is_unused_is_said(config, corpus, tmp_path, capsys):
    known = corpus.tokenizer.vocab_size
    line = f"model.vocab_size is {2 * known + 1} and the tokenizer knows {known}; leave it out to have as many\n"
    for size, said in ((2 * known, False), (2 * known + 1, True)):
        train(config.replace({"model.vocab_size": size, "steps": 3}), REPLICAS, corpus, tmp_path / str(size))
        assert (line in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "a.txt"}, r"a data set is needed, and 'a\.txt' is given; load_data\(TextConfig\(path='a\.txt'\)\)"),
        ({"data": TextConfig()}, r"a data set is needed, and TextConfig is given; load_data\(data\)"),
        ({"data": np.zeros((4, 5))}, r"and ndarray is given; arrays\(tokens\) makes one of numbers"),
        ({"data": (i for i in range(2))}, "and generator is given"),
        ({"replicas": 4}, r"4 are no replicas; grid\(4\) makes four"),
        ({"replicas": []}, r"\[\] are no replicas"),
        ({"replicas": [0, 1]}, r"\[0, 1\] are no replicas"),
        ({"initial": [{}, {}]}, r"^train: initial is a list, not parameters; those of a run are run\.params\(\)$"),
        ({"mesh": jax.make_mesh((1,), ("data",))}, "^train: mesh: MeshConfig is needed, and Mesh is given"),
    ],
)
def test_what_is_no_data_and_what_are_no_replicas(config, corpus, tmp_path, given, message):
    arguments = {"config": config, "replicas": REPLICAS, "data": corpus, "workdir": tmp_path / "run"}
    with pytest.raises(ConfigError, match=message):
        train(**arguments | given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("every", "seconds", "saved"), [(None, 600.0, [6]), (None, 0.0, [4, 6]), (5, 0.0, [5, 6])])
def test_a_run_that_says_no_steps_is_saved_by_the_time(config, corpus, tmp_path, monkeypatch, every, seconds, saved):
    """Of what was saved the latest two are there."""
    monkeypatch.setattr(loop, "SECONDS_UNSAVED", seconds)
    config = config.replace(steps=6, steps_per_dispatch=2, evaluate_every=None, checkpoint_every=every)
    train(config, REPLICAS, corpus, tmp_path / "run")
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == saved


def test_a_longer_run_has_the_evaluations_of_the_shorter_one(tmp_path, config, corpus):
    """The last one of the shorter run came after its last checkpoint, and is made again."""
    short = config.replace({"evaluate_every": 2, "steps": 4})
    for name, first in (("short", short), ("other", short.replace(evaluate_every=3))):
        for steps in (4, 6):
            train(first.replace(steps=steps), grid(range(2)), corpus, tmp_path / name, when_not_empty="resume")
    found = {
        name: sorted({line["step"] for line in read_metrics(tmp_path / name) if "validation_loss" in line})
        for name in ("short", "other")
    }
    assert found == {"short": [2, 4, 6], "other": [3, 4, 6]}
