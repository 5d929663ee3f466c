"""Runs in one program are the runs alone; variants under one seed are real pairs."""

import dataclasses
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import transformer.training.replicas
from transformer.data.corpus import Blocks
from transformer.data.dataset import stack_batches
from transformer.norms.norm import RMSNorm
from transformer.objectives.objective import NextToken, Sums
from transformer.residuals.residual import SandwichNorm
from transformer.runs.config import Replica
from transformer.runs.mesh import MeshConfig
from transformer.training.program import make_program
from transformer.training.replicas import over_replicas
from transformer.training.sharding import make_mesh

REPLICAS = (
    Replica(seed=0),
    Replica(seed=1, learning_rate=3e-2, weight_decay=0.0),
    Replica(seed=0, warmup_steps=0, initial_scale=2.0),
    Replica(seed=5, learning_rate=1e-3),
)


def run(config, corpus, replicas):
    """Parameters and losses after one dispatch, leading axis R."""
    program = make_program(config, replicas)
    batches = [Blocks(corpus.train, config.model.max_length, config.batch_size, r.seed) for r in replicas]
    state, metrics = program.train(program.init(), stack_batches(batches, 0, config.steps_per_dispatch))
    return jax.device_get((state.params, metrics["loss"]))


def replica(tree, i):
    return jax.tree.map(lambda a: a[i], tree)


@pytest.mark.parametrize(("order", "atol"), [("one after another", 1e-5), ("side by side", 1e-4)])
def test_replicas_equal_single_runs(config, corpus, order, atol, monkeypatch):
    """To float tolerance: where a device has one replica, XLA unrolls the loop over them and fuses anew.

    What is random is that of the replica, not of its place. A CPU computes them one after another, an accelerator side
    by side, in other products, whose rounding Adam carries on.
    """
    if order == "side by side":
        as_there = SimpleNamespace(map=lambda one, own: jax.vmap(one)(own), scan=jax.lax.scan)
        monkeypatch.setattr(transformer.training.replicas, "lax", as_there)
    config = config.replace({"model.dropout": 0.3})
    together = run(config, corpus, REPLICAS)
    for i, one in enumerate(REPLICAS):
        chex.assert_trees_all_close(replica(together, i), replica(run(config, corpus, [one]), 0), rtol=1e-4, atol=atol)


def test_replicas_do_not_depend_on_their_company(config, corpus):
    """Bit for bit, where a device of the CPU has two replicas or more; one of them diverges."""
    four = run(config, corpus, REPLICAS)
    six = run(config, corpus, [Replica(seed=8), *REPLICAS[::-1], Replica(seed=9, learning_rate=1e38, warmup_steps=0)])
    assert not np.isfinite(replica(six, 5)[1]).all()
    for i in range(4):
        chex.assert_trees_all_equal(replica(four, i), replica(six, 4 - i))


def test_replicas_differ_in_every_number(config, corpus):
    params, _ = run(config, corpus, [Replica(seed=3), *(Replica(seed=3, **{k: v}) for k, v in NUMBERS.items())])
    kernel = params["blocks"]["kinds"]["0"]["attention"]["query"]["kernel"]
    for i, name in enumerate(NUMBERS, 1):
        assert np.abs(kernel[i] - kernel[0]).max() > 1e-6, name


NUMBERS = {"learning_rate": 1e-3, "weight_decay": 5.0, "warmup_steps": 0, "initial_scale": 0.5}


def test_variants_under_one_seed_share_initial_values(config):
    first = make_program(config, REPLICAS[:1]).init().params
    changed = config.replace({"model.norm": RMSNorm(), "model.residual": SandwichNorm(), "model.head.tied": False})
    second = make_program(changed, REPLICAS[:1]).init().params
    mine, other = (
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (first, second)
    )
    shared = mine.keys() & other.keys()
    assert len(shared) >= 9
    for path in shared:
        np.testing.assert_array_equal(mine[path], other[path])


def test_the_initial_scale_multiplies_random_values_only(config):
    one, two = (make_program(config, [Replica(seed=0, initial_scale=s)]).init().params for s in (1.0, 2.0))
    np.testing.assert_allclose(two["embedding"]["table"], 2 * one["embedding"]["table"], rtol=1e-6)
    np.testing.assert_array_equal(two["final_norm"]["params"]["scale"], one["final_norm"]["params"]["scale"])


@pytest.mark.parametrize(
    ("replicas", "batch_size", "shape"),
    [(2, 4, (2, 1)), (6, 3, (2, 1)), (1, 4, (1, 2)), (3, 4, (1, 2)), (3, 5, (1, 1))],
)
def test_devices_take_replicas_first_and_then_parts_of_the_batch(replicas, batch_size, shape):
    assert make_mesh(MeshConfig(), replicas, batch_size).devices.shape == (*shape, 1, 1)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_batch_shared_by_devices_gives_the_gradient_of_the_whole(config, corpus, accumulation):
    """Batches of 4 are cut over two devices, batches of 1 cannot be."""
    config = config.replace(accumulation=accumulation, steps_per_dispatch=2)
    whole = config.replace(accumulation=4)
    assert (make_program(config, REPLICAS[:1]).data_devices, make_program(whole, REPLICAS[:1]).data_devices) == (2, 1)
    results = [run(c, corpus, REPLICAS[:1]) for c in (config, whole)]
    chex.assert_trees_all_close(*results, rtol=1e-4, atol=1e-5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfPairs(NextToken):
    """Each sequence against the others of its batch, as contrastive losses."""

    def __call__(self, apply, params, batch, key):
        states_BLD = apply(params, batch["tokens"][:, :-1], method="states", key=key)
        likeness_BB = states_BLD[:, 0] @ states_BLD[:, -1].T
        losses_B1 = -jnp.diagonal(jax.nn.log_softmax(likeness_BB))[:, None]
        return Sums.of(losses_B1, jnp.ones_like(losses_B1), jnp.zeros_like(losses_B1))


def test_rows_that_an_objective_compares_stay_together(config, corpus):
    config = config.replace(accumulation=2, steps_per_dispatch=2, objective=OfPairs())
    batches = stack_batches([Blocks(corpus.train, config.model.max_length, config.batch_size, 0)], 0, 2)
    losses = []
    for data in (1, 2):
        program = make_program(config, REPLICAS[:1], MeshConfig(replica=1, data=data))
        losses.append(jax.device_get(program.train(program.init(), program.put(batches))[1]["loss"]))
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_replicas_are_spread_over_devices(config):
    table = make_program(config, REPLICAS).init().params["embedding"]["table"]
    assert len(table.sharding.device_set) == 2
    assert {shard.data.shape[0] for shard in table.addressable_shards} == {2}


def test_one_compilation_for_all_replicas_and_all_dispatches(config, corpus):
    program = make_program(config, REPLICAS)
    batches = [Blocks(corpus.train, config.model.max_length, config.batch_size, r.seed) for r in REPLICAS]
    state = program.init()
    for first in (0, 5):
        state, _ = program.train(state, stack_batches(batches, first, 5))
    assert program.train._cache_size() == 1


def test_what_all_replicas_share_is_an_argument_as_others():
    """Inside of the program of one device, `where` takes no array of the one around it."""
    mesh = make_mesh(MeshConfig(replica=1, data=1), 2, 1)
    run = jax.jit(over_replicas(lambda x, valid: x + jnp.where(valid, 0.0, 1.0), mesh, shared=(1,)))
    x, valid = jax.device_put((jnp.array([2.0, 4.0]), jnp.array([True, False])), NamedSharding(mesh, PartitionSpec()))
    assert run(x, valid).tolist() == [[2.0, 3.0], [4.0, 5.0]]
