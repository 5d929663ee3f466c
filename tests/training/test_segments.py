"""Training on segments that follow each other: the state carries what is earlier, whatever else is done."""

import jax
import numpy as np
import pytest

from transformer.core.modules import split
from transformer.data.corpus import Following, in_streams, load_corpus, whole_split
from transformer.data.dataset import stack_batches
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build
from transformer.models.config import ModelConfig
from transformer.objectives.objective import NextToken
from transformer.positions.rotary import RoPE
from transformer.runs.config import Replica, RunConfig
from transformer.runs.data import TextConfig
from transformer.training.loop import train
from transformer.training.program import make_program

MODEL = ModelConfig(
    vocab_size=4,
    max_length=8,
    num_layers=2,
    d_model=16,
    mixer=Attention(num_heads=2),
    position=RoPE(),
    memory_length=12,
    dropout=0.1,
)
CONFIG = RunConfig(model=MODEL, steps=6, batch_size=4, steps_per_dispatch=2)
TEXT = np.random.default_rng(0).integers(0, 4, 500).astype(np.int32)


def batches(config=CONFIG, seeds=(0,), count=3):
    rows = [Following(TEXT, config.model.max_length, config.batch_size, seed) for seed in seeds]
    return stack_batches(rows, 0, count)


ONE = (Replica(),)


def trained(config=CONFIG, replicas=ONE, count=3):
    """The state after some steps in one dispatch."""
    program = make_program(config, replicas)
    seeds = tuple(replica.seed for replica in replicas)
    state, metrics = program.train(program.init(), program.put(batches(config, seeds, count)))
    return state, metrics


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.opt_state, state.earlier))]


def test_rows_go_on_and_every_token_is_a_label_once():
    """The last token of a row is the first of the next; a pass over the text has each label as often as any."""
    text = np.arange(64, dtype=np.int32)
    rows = Following(text, 4, 2, seed=3)
    for step in range(20):
        np.testing.assert_array_equal(rows[step]["tokens"][:, -1], rows[step + 1]["tokens"][:, 0])
    labels = np.concatenate([rows[step]["tokens"][:, 1:].ravel() for step in range(8)])
    np.testing.assert_array_equal(np.sort(labels), text)
    assert not np.array_equal(rows[0]["tokens"], Following(text, 4, 2, seed=4)[0]["tokens"])


def test_rows_of_the_validation_part_go_on():
    """The same blocks in another order."""
    blocks = whole_split(np.arange(50, dtype=np.int32), 4, 3)
    streams = in_streams(blocks)
    assert streams["tokens"].shape == blocks["tokens"].shape
    for left, right in zip(streams["tokens"][:-1], streams["tokens"][1:], strict=True):
        there = right[:, 1] > 0  # zeros fill the last rows
        np.testing.assert_array_equal(left[there, -1], right[there, 0])
    assert sorted(map(tuple, streams["tokens"].reshape(-1, 5))) == sorted(map(tuple, blocks["tokens"].reshape(-1, 5)))


def test_the_state_carries_what_is_earlier():
    """After one step at a learning rate of 0 the second batch has the loss of a model that reads both."""
    config = CONFIG.replace({"model.dropout": 0.0, "optimizer.learning_rate": 0.0})
    params, apply = split(build(config.model, key=jax.random.key(0)))
    program = make_program(config, ONE, initial=params)
    found = program.train(program.init(), program.put(batches(count=2)))[1]["loss"][0, 1]
    tokens = batches(count=2)["tokens"][0]
    both = np.concatenate([tokens[0], tokens[1][:, 1:]], 1)
    sums = NextToken()(apply, params, {"tokens": both}, None)
    np.testing.assert_allclose(found, sums.loss[8:].sum() / 32, rtol=1e-5)


def test_a_skipped_update_leaves_what_is_earlier():
    """As it leaves the parameters and the moments."""
    config = CONFIG.replace({"optimizer.skip_limit": 3, "optimizer.skip_above": 1e-9})
    program = make_program(config, ONE)
    before = leaves(program.init())
    state, metrics = program.train(program.init(), program.put(batches(config, count=2)))
    assert metrics["skipped"].tolist() == [[1, 1]]
    for left, right in zip(before, leaves(state), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("change", [{"accumulation": 2}, {"model.layers": "scanned"}], ids=["accumulation", "scanned"])
def test_pieces_and_loops_change_nothing(change):
    """Without dropout, up to rounding."""
    config = CONFIG.replace({"model.dropout": 0.0})
    for left, right in zip(leaves(trained(config)[0]), leaves(trained(config.replace(change))[0]), strict=True):
        np.testing.assert_allclose(left, right, atol=2e-5)


def test_a_replica_is_the_single_run():
    """Each carries its own."""
    replicas = (Replica(seed=0), Replica(seed=1, learning_rate=3e-3))
    both, _ = trained(replicas=replicas)
    for i, replica in enumerate(replicas):
        alone, _ = trained(replicas=(replica,))
        for left, right in zip(leaves(both), leaves(alone), strict=True):
            np.testing.assert_allclose(left[i], right[0], atol=1e-6)


def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path):
    """What is earlier is in the checkpoint; the whole run and its evaluation, twice."""
    (tmp_path / "text.txt").write_text("abacabad" * 60)
    config = CONFIG.replace(
        {"data": TextConfig(path=str(tmp_path / "text.txt")), "checkpoint_every": 2, "model.vocab_size": None}
    )
    data = load_corpus(config.data)
    replicas = (Replica(seed=0), Replica(seed=1))
    whole = train(config, replicas, data, tmp_path / "whole")
    (tmp_path / "whole" / "checkpoints" / "00000006").rename(tmp_path / "gone")  # as if it had ended after step 4
    resumed = train(config, replicas, data, tmp_path / "whole", when_not_empty="resume")
    np.testing.assert_array_equal(resumed.validation_loss, whole.validation_loss)
    for left, right in zip(jax.tree.leaves(resumed.all_params), jax.tree.leaves(whole.all_params), strict=True):
        np.testing.assert_array_equal(left, right)
