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
from transformer.functional.context import over_context
from transformer.functional.masks import Arbitrary, Causal, Padding, Segment, Tokens, Window
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


def loss(arrays, function, how):
    out = function(*arrays, queries=TOKENS, keys=TOKENS, **how).out
    return jnp.sin(out).mean(), out


@pytest.mark.parametrize("name", HOW)
def test_values_and_gradients_are_those_of_one_device(name):
    def of_devices(*arrays, **how):
        return over_context(lambda *a, **h: chunked_attention(*a, **h, block=3), *arrays, **how)

    exact = jax.grad(loss, has_aux=True)([Q, K, V], attention, HOW[name])
    with use_abstract_mesh(MESH.abstract_mesh):
        program = jax.jit(jax.grad(lambda arrays: loss(arrays, of_devices, HOW[name]), has_aux=True))
        arrays = jax.device_put([Q, K, V], jax.NamedSharding(MESH, jax.P()))
        found = program(arrays)
    for left, right in zip(jax.tree.leaves(exact), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(right, left, atol=1e-5)


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
