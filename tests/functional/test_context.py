"""Attention whose queries are divided over devices is that of one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import use_abstract_mesh
from jax.tree_util import Partial

from transformer.functional.attention import attention
from transformer.functional.biases import LinearDistance
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.context import dealt_parts, moves, on_each, over_context, sees_more_later
from transformer.functional.masks import Arbitrary, Causal, Padding, Segment, Tokens, Window
from transformer.functional.normalizers import Softmax
from transformer.functional.ring_attention import ring_attention
from transformer.runs.mesh import MeshConfig
from transformer.training.sharding import make_mesh

L = 8
RNG = np.random.default_rng(0)
Q, K, V = (jnp.asarray(RNG.normal(size=(2, L, heads, 4)), jnp.float32) for heads in (4, 2, 2))
TOKENS = Tokens.at(
    jnp.arange(L), segments=jnp.asarray([[0] * 3 + [1] * 5]), valid=jnp.asarray([[True] * L, [False] * 2 + [True] * 6])
)
MESH = make_mesh(MeshConfig(context=2), 1, 1)
HOW = {
    "plain": {},
    "causal with a bias": {"mask": Causal(), "bias": LinearDistance(jnp.asarray([0.5, 0.25, 0.125, 0.1]))},
    "packed": {"mask": Causal() & Padding() & Segment(), "scale": jnp.float32(0.3)},
    "by index": {"mask": Arbitrary(jnp.asarray(RNG.random((L, L)) < 0.7)) & Window(5)},
    "a function of scores": {"mask": Causal(), "score": Partial(lambda scores, *_, c: c * jnp.tanh(scores / c), c=2.0)},
}


def loss(arrays, function, how, tokens=TOKENS):
    out = function(*arrays, queries=tokens, keys=tokens, **how).out
    return jnp.sin(out).mean(), out


def gathered(*arrays, **how):
    return over_context(lambda *a, **h: chunked_attention(*a, **h, block=3), *arrays, **how)


def in_a_ring(*arrays, **how):
    return ring_attention(*arrays, **how, block=3)


@pytest.mark.parametrize("of_devices", [gathered, in_a_ring])
@pytest.mark.parametrize("name", HOW)
def test_values_and_gradients_are_those_of_one_device(name, of_devices):
    exact = jax.grad(loss, has_aux=True)([Q, K, V], attention, HOW[name])
    with use_abstract_mesh(MESH.abstract_mesh):
        program = jax.jit(jax.grad(lambda arrays: loss(arrays, of_devices, HOW[name]), has_aux=True))
        arrays = jax.device_put([Q, K, V], jax.NamedSharding(MESH, jax.P()))
        found = program(arrays)
    for left, right in zip(jax.tree.leaves(exact), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(right, left, atol=1e-5)


@pytest.mark.parametrize("of_devices", [gathered, in_a_ring])
def test_lengths_that_divide_into_parts_of_devices_and_not_into_halves_of_those(of_devices):
    arrays, tokens = [a[:, :6] for a in (Q, K, V)], TOKENS.block(0, 6)
    exact = loss(arrays, attention, HOW["packed"], tokens)[1]
    with use_abstract_mesh(MESH.abstract_mesh):
        program = jax.jit(lambda arrays: loss(arrays, of_devices, HOW["packed"], tokens)[1])
        found = program(jax.device_put(arrays, jax.NamedSharding(MESH, jax.P())))
    np.testing.assert_allclose(found, exact, atol=1e-5)


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_parts_that_are_dealt(devices):
    """Every device passes two on and is given two, of which one is as far from the front as the other from the end."""
    for turn in moves(devices):
        assert sorted(to for _, to in turn) == list(range(devices))
    own = np.sort(dealt_parts(devices).reshape(devices, 2), axis=1)
    assert own.tolist() == [[device, 2 * devices - 1 - device] for device in range(devices)]


def test_masks_under_which_late_queries_see_more():
    assert [sees_more_later(mask) for mask in (Causal(), Causal() & Padding() & Segment())] == [True, True]
    assert [sees_more_later(mask) for mask in (None, Padding(), Causal() & Window(5))] == [False] * 3


@pytest.mark.parametrize(("dealt", "sums"), [(True, [14, 14]), (False, [6, 22])])
def test_dealt_queries_see_as_much_on_each_device(dealt, sums):
    """The positions that each device has, summed, in the order of tokens that comes back."""

    def of_device(x_BLD, queries):
        return jnp.stack([x_BLD, jnp.full_like(x_BLD, queries.positions.sum())], -1)

    tokens, x_BL = Tokens.first(L), jnp.arange(L)[None]
    with use_abstract_mesh(MESH.abstract_mesh):
        program = jax.jit(lambda *own: on_each(of_device, own, (), dealt=dealt))
        own, found = jnp.unstack(program(*jax.device_put((x_BL, tokens), jax.NamedSharding(MESH, jax.P()))), axis=-1)
    np.testing.assert_array_equal(own, x_BL)
    assert sorted(found[0].tolist()) == sorted(sums * (L // 2))


def test_a_ring_has_all_gradients_of_one_device():
    """Those of sinks, a bias, the scale and what a function of scores holds; of replicas too."""

    def run(function, arrays, sink_H, slopes_H, scale, cap):
        score = Partial(lambda scores, *_, cap: cap * jnp.tanh(scores / cap), cap=cap)
        how = {"mask": Causal() & Padding() & Segment(), "bias": LinearDistance(slopes_H), "scale": scale}
        return loss(arrays, function, {**how, "score": score, "weigh": Softmax(sink_H)})

    sinks_H, slopes_H = jnp.asarray([0.5, -1.0, 0.1, 2.0]), jnp.asarray([0.5, 0.25, 0.125, 0.1])
    one = [Q, K, V], sinks_H, slopes_H, jnp.asarray(0.6), jnp.asarray(2.0)
    arguments = jax.tree.map(lambda a: jnp.stack([a, 1.1 * a]), one)

    def gradients(function):
        return jax.vmap(jax.grad(lambda *a: run(function, *a), argnums=range(5), has_aux=True))

    exact = gradients(attention)(*arguments)
    with use_abstract_mesh(MESH.abstract_mesh):
        found = jax.jit(gradients(in_a_ring))(*jax.device_put(arguments, jax.NamedSharding(MESH, jax.P())))
    for left, right in zip(jax.tree.leaves(exact), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(right, left, atol=1e-5)


def test_keys_go_round_and_are_not_gathered():
    """Of whole texts there is nothing in the program of a device, where gathering has their keys and values."""
    cut = jax.NamedSharding(MESH, jax.P(None, "context"))

    def program(function):
        grad = jax.grad(lambda arrays: loss(arrays, function, HOW["packed"])[0])
        return jax.jit(grad, in_shardings=cut, out_shardings=cut).lower([Q, K, V]).compile().as_text()

    with use_abstract_mesh(MESH.abstract_mesh):
        ring, gathering = program(in_a_ring), program(gathered)
    keys = [f"f32[2,{length},2,4]" for length in (L, L // 2)]
    assert "collective-permute" in ring
    assert [shape in ring for shape in keys] == [False, True]
    assert [shape in gathering for shape in keys] == [True, True]


def asked(queries: int, devices: int) -> list[int]:
    """The numbers of queries that attention is asked for while it is traced."""
    mesh, counts = jax.sharding.AbstractMesh((1, 1, devices, 1), MESH.axis_names, axis_types=MESH.axis_types), []

    def attend(q_BLHK, k_BSGK, v_BSGK, *, queries, **how):
        counts.append((q_BLHK.shape[1], queries.length))
        return attention(q_BLHK, k_BSGK, v_BSGK, queries=queries, **how)

    sides = {"queries": Tokens.at(jnp.arange(queries)), "keys": TOKENS}
    with use_abstract_mesh(mesh):
        jax.eval_shape(lambda q: over_context(attend, q, K, V, **sides), Q[:, :queries])
    assert len({number for one in counts for number in one}) == 1
    return [one for one, _ in counts]


def test_a_device_is_asked_for_its_own_queries():
    assert asked(8, 4) == [2]
    assert asked(8, 1) == [8]
    assert asked(1, 4) == [1]  # of a decoder, which no one divides
