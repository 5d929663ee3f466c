"""Splash gives what exact attention gives, or says why not; on a CPU it is interpreted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import use_abstract_mesh

from transformer.core.arrays import compiled_for
from transformer.functional.attention import SoftCapped, attention
from transformer.functional.biases import LinearDistance
from transformer.functional.fused_attention import fused_attention
from transformer.functional.masks import Causal, Padding, Prefix, Segment, Tokens, Window
from transformer.functional.normalizers import Softmax
from transformer.functional.splash_attention import by_splash, why_not_splash
from transformer.models.stack import Unrolled
from transformer.runs.mesh import MeshConfig
from transformer.training.sharding import make_mesh

L = 256
RNG = np.random.default_rng(0)
Q, K, V = (jnp.asarray(RNG.normal(size=(2, L, heads, 16)), jnp.float32) for heads in (4, 2, 2))
SINKS = jnp.asarray([-1.0, 0.0, 1.0, 3.0])
VALID = jnp.asarray([[True] * L, [False] * 40 + [True] * (L - 40)])
TOKENS = Tokens.at(jnp.arange(L), segments=jnp.asarray([[0] * 100 + [1] * (L - 100)]), valid=VALID)
PLAIN = Tokens.first(L)
MASKS = {
    "all": None,
    "causal": Causal(),
    "window": Causal() & Window(50),
    "both sides": Window(30),
    "packed": Causal() & Padding() & Segment(),
}


@pytest.mark.parametrize(
    ("dtype", "tolerance", "soft_cap"),
    [(jnp.float32, 1e-5, None), (jnp.float32, 1e-5, 2.0), (jnp.bfloat16, 2**-7, None)],
    ids=["32", "capped", "16"],
)
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_values_and_gradients_are_those_of_exact_attention(mask, sinks, dtype, tolerance, soft_cap):
    """Groups of small heads, in one block of 256; rows of padding are not compared.

    Numbers of 16 bits may be rounded to neighbours.
    """
    arrays = [x.astype(dtype) for x in (Q, K, V)] + [SINKS] * sinks
    sides = {"queries": TOKENS, "keys": TOKENS, "mask": MASKS[mask], "scale": 0.25}
    counted = VALID[:, :, None, None] | (mask != "packed")

    def loss(arrays, function):
        out = jnp.where(counted, function(*arrays, **sides).astype(jnp.float32), 0)
        return jnp.sin(out).mean(), out

    def exactly(q, k, v, sink=None, **sides):
        score = None if soft_cap is None else SoftCapped(soft_cap)
        return attention(q, k, v, **sides, score=score, weigh=Softmax(sink)).out

    def kernel(q, k, v, sink=None, **sides):
        return by_splash(q, k, v, **sides, sink_H=sink, soft_cap=soft_cap, interpret=True)

    exact, ours = (jax.grad(loss, has_aux=True)(arrays, function) for function in (exactly, kernel))
    for left, right in zip(jax.tree.leaves(exact), jax.tree.leaves(ours), strict=True):
        scale = float(jnp.abs(left).max())
        difference = jnp.abs(left.astype(jnp.float32) - right.astype(jnp.float32)).max()
        assert float(difference) <= tolerance * scale


@pytest.mark.parametrize(("mask", "times"), [*((mask, 1) for mask in MASKS), ("causal", 2), ("packed", 2)])
def test_queries_divided_over_devices_find_what_those_of_one_find(mask, times):
    """Half of them on each of two devices, which share the blocks of the mask; of two whole blocks they are dealt."""
    mesh = make_mesh(MeshConfig(context=2), 1, 1)
    *arrays, segments, valid = (
        jnp.concatenate([a, jnp.flip(a, 1)][:times], 1) for a in (Q, K, V, TOKENS.segments, VALID)
    )
    tokens = Tokens.at(jnp.arange(times * L), segments=segments, valid=valid)

    def loss(arrays):
        q, k, v, sink = arrays
        sides = {"queries": tokens, "keys": tokens, "mask": MASKS[mask]}
        out = by_splash(q, k, v, **sides, scale=0.25, sink_H=sink, interpret=True)
        return jnp.sin(out).mean(), out

    arrays = [*arrays, SINKS]
    alone = jax.grad(loss, has_aux=True)(arrays)
    with use_abstract_mesh(mesh.abstract_mesh):
        program = jax.jit(jax.grad(loss, has_aux=True))
        shared = program(jax.device_put(arrays, jax.NamedSharding(mesh, jax.P())))
        assert ("ppermute" in str(jax.make_jaxpr(loss)(arrays))) == (times == 2)
    for left, right in zip(jax.tree.leaves(alone), jax.tree.leaves(shared), strict=True):
        np.testing.assert_allclose(right, left, atol=1e-6)


def test_rows_that_a_device_has_alone_find_what_all_find():
    """Where the gradient of its own rows is summed on each device, these are in a program for each already."""
    mesh = make_mesh(MeshConfig(data=2), 1, 2)
    exact = attention(Q, K, V, queries=TOKENS, keys=TOKENS, mask=Causal(), scale=0.25).out

    def attend(q, k, v):
        return by_splash(q, k, v, queries=PLAIN, keys=PLAIN, mask=Causal(), scale=0.25, interpret=True)

    rows = jax.P("data")
    with use_abstract_mesh(mesh.abstract_mesh):
        shared = jax.shard_map(attend, axis_names={"data"}, in_specs=(rows,) * 3, out_specs=rows, check_vma=False)
        out = jax.jit(shared)(*jax.device_put((Q, K, V), jax.NamedSharding(mesh, jax.P())))
    np.testing.assert_allclose(out, exact, atol=1e-5)


def test_heads_that_fill_a_row_of_registers_lie_otherwise():
    q, k, v = (jnp.tile(x, 8) for x in (Q, K, V))
    sides = {"queries": TOKENS, "keys": TOKENS, "mask": Causal(), "scale": 0.05}

    def loss(arrays, function):
        return jnp.sin(function(*arrays, **sides)).mean()

    exact = jax.grad(loss)((q, k, v), lambda *arrays, **sides: attention(*arrays, **sides).out)
    ours = jax.grad(loss)((q, k, v), lambda *arrays, **sides: by_splash(*arrays, **sides, interpret=True))
    for left, right in zip(exact, ours, strict=True):
        np.testing.assert_allclose(right, left, atol=1e-5 * float(jnp.abs(left).max()))
    small, large = (str(jax.make_jaxpr(lambda q: by_splash(q, q, q, **sides, interpret=True))(one)) for one in (Q, q))
    assert small.count("transpose[") > large.count("transpose[")


@pytest.mark.parametrize("mesh", [MeshConfig(data=1), MeshConfig(data=2), MeshConfig(context=2)], ids=str)
def test_what_it_computes_is_kept_where_products_are(mesh):
    """The gradient takes three kernels, here loops: rematerialization that keeps products runs none of them again."""
    mesh = make_mesh(mesh, 1, 2)

    def attend(factor, _):
        sides = {"queries": PLAIN, "keys": PLAIN, "mask": Causal()}
        return jnp.square(by_splash(Q * factor, K, V, **sides, scale=0.25, interpret=True)).sum(), None

    def loops(remat):
        program = jax.jit(
            jax.value_and_grad(lambda factor: Unrolled(remat=remat)(attend, factor, jnp.zeros((1, 1)), 1)[0])
        )
        with use_abstract_mesh(mesh.abstract_mesh):
            given = jax.ShapeDtypeStruct((), jnp.float32, sharding=jax.NamedSharding(mesh, jax.P()))
            return program.lower(given).compile().as_text().count(" while(")

    assert loops("dots") == loops("none") == loops("full") - 1


def test_what_the_kernel_does_not_take_is_named():
    slopes = LinearDistance(jnp.asarray([0.5, 0.25, 0.125, 0.1]))
    named = {
        "float16": why_not_splash(Q.astype(jnp.float16), K, None, 0.3, None, TOKENS),
        "multiple of 128, not 6": why_not_splash(Q[:, :6], K, None, 0.3, None, TOKENS),
        "not 256 for 128": why_not_splash(Q[:, :128], K, None, 0.3, None, TOKENS),
        "no bias": why_not_splash(Q, K, slopes, 0.3, None, TOKENS),
        "no trained scale": why_not_splash(Q, K, None, jnp.float32(0.3), None, TOKENS),
        "no mask Prefix": why_not_splash(Q, K, None, 0.3, Causal() & Prefix(3), TOKENS),
        "given and may be any": why_not_splash(Q, K, None, 0.3, Window(30) & Padding(), Tokens.at(7 * jnp.arange(L))),
    }
    for part, reason in named.items():
        assert part in reason
    assert not why_not_splash(Q, K, None, 0.3, MASKS["packed"], TOKENS)
    assert not why_not_splash(Q, K, None, 0.3, MASKS["window"], Tokens.first(L))
    assert not why_not_splash(Q, K, None, 0.3, Padding(), Tokens.at(7 * jnp.arange(L)))


def test_on_a_tpu_it_is_what_fused_attention_runs(monkeypatch):
    """Not for keys of a cache, and with a warning not for what it does not take."""
    asked = []
    kernel = "transformer.functional.fused_attention.by_splash"
    monkeypatch.setattr(kernel, lambda q, k, v, **how: asked.append(how) or q)
    sides = {"queries": TOKENS, "keys": TOKENS, "mask": Causal()}
    with compiled_for("tpu"):
        assert fused_attention(Q, K, V, **sides, weigh=Softmax(SINKS), score=SoftCapped(7.0)).out is Q
        fused_attention(Q, K, V, **sides, own_keys=False)
        with pytest.warns(UserWarning, match="Splash takes no mask Prefix.*; it is computed exactly"):
            fused_attention(Q, K, V, **sides | {"mask": Prefix(3)})
    assert len(asked) == 1
    assert asked[0]["sink_H"] is SINKS
    assert asked[0]["soft_cap"] == 7.0
