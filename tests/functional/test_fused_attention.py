"""The kernels of JAX give what exact attention gives, or say why not."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import use_abstract_mesh

from transformer.core.arrays import compiled_for
from transformer.functional.attention import SoftCapped, attention
from transformer.functional.biases import LinearDistance
from transformer.functional.fused_attention import by_cudnn, fused_attention, why_not_cudnn
from transformer.functional.masks import Causal, Full, Padding, Prefix, Segment, Tokens, Window
from transformer.functional.normalizers import ReLUWeigh
from transformer.runs.mesh import MeshConfig
from transformer.training.sharding import make_mesh

FUSED = "transformer.functional.fused_attention"
RNG = np.random.default_rng(0)
Q, K, V = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((2, 6, 4, 8), (2, 6, 2, 8), (2, 6, 2, 8)))
VALID = jnp.asarray([[True] * 6, [False] * 2 + [True] * 4])
TOKENS = Tokens.at(jnp.arange(6), segments=jnp.asarray([[0, 0, 1, 1, 1, 2]]), valid=VALID)
SLOPES = LinearDistance(jnp.asarray([0.5, 0.25, 0.125, 0.1]))
MASK = Causal() & Padding() & Segment()


def exactly(*arrays, **sides):
    return attention(*arrays, **sides).out


@pytest.fixture
def without_cuda(monkeypatch):
    """XLA has the place of cuDNN."""
    monkeypatch.setattr(f"{FUSED}.has_cuda", lambda: False)


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize("mask", [None, Padding(), MASK], ids=["", "padding", "packed"])
def test_values_and_gradients_are_those_of_exact_attention(mask):
    """Groups of heads; in the second sequence the first tokens attend to nothing, and have zeros."""

    def loss(arrays, function):
        out = function(*arrays, queries=TOKENS, keys=TOKENS, mask=mask, scale=0.3)
        return jnp.sin(out).sum(), out

    exact, ours = (jax.grad(loss, has_aux=True)((Q, K, V), function) for function in (exactly, by_cudnn))
    for left, right in zip(jax.tree.leaves(exact), jax.tree.leaves(ours), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)
    if mask is MASK:
        assert not np.any(ours[1][1, :2])


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize("mask", [None, Causal(), MASK], ids=["", "causal", "packed"])
@pytest.mark.parametrize("axis", ["data", "context", "model"])
def test_each_device_computes_its_own_sequences_queries_or_heads(axis, mask):
    """Their values and gradients are those of one device, and only keys and their gradients pass between two."""
    mesh = make_mesh(MeshConfig(**{"replica": 1, "data": 1, axis: 2}), 1, 2)
    cut = {"data": jax.P("data"), "context": jax.P(None, "context"), "model": jax.P(None, None, "model")}[axis]

    def loss(arrays):
        out = by_cudnn(*arrays, queries=TOKENS, keys=TOKENS, mask=mask, scale=0.3)
        return jnp.sin(out).sum(), out

    alone = jax.grad(loss, has_aux=True)((Q, K, V))
    with use_abstract_mesh(mesh.abstract_mesh):
        there = jax.device_put((Q, K, V), jax.NamedSharding(mesh, cut))
        program = jax.jit(jax.grad(loss, has_aux=True)).lower(there).compile()
    for left, right in zip(jax.tree.leaves(alone), jax.tree.leaves(program(there)), strict=True):
        np.testing.assert_allclose(right, left, atol=1e-6)
    assert ("all-gather(" in program.as_text()) == (axis == "context")


@pytest.mark.usefixtures("without_cuda")
def test_a_cached_step_sees_every_key():
    """One query behind five keys; a kernel that is told "causal" would show it the first one alone."""
    last = Tokens.at(jnp.asarray([5]))
    arguments = {"queries": last, "keys": Tokens.at(jnp.arange(6)), "mask": Causal(), "scale": 0.3}
    expected = exactly(Q[:, -1:], K, V, **arguments)
    np.testing.assert_allclose(by_cudnn(Q[:, -1:], K, V, **arguments), expected, atol=1e-6)


def test_what_cudnn_does_not_take_is_named(monkeypatch):
    """A warning on a GPU, and exact attention; what it takes goes there with the whole mask."""
    half = [x.astype(jnp.bfloat16) for x in (Q, K, V)]
    assert not why_not_cudnn(*half[:2], None, 0.3)
    named = {
        "float16, not float32": why_not_cudnn(Q, K, None, 0.3),
        "multiple of 8 up to 128, not 7": why_not_cudnn(half[0][..., :7], half[1], None, 0.3),
        "even lengths, not 5 and 6": why_not_cudnn(half[0][:, :5], half[1], None, 0.3),
        "round the bias": why_not_cudnn(*half[:2], SLOPES, 0.3),
        "no trained scale": why_not_cudnn(*half[:2], None, jnp.float32(0.3)),
        "no sinks": why_not_cudnn(*half[:2], None, 0.3, jnp.zeros(4)),
        "no soft cap": why_not_cudnn(*half[:2], None, 0.3, None, SoftCapped(2.0)),
    }
    with use_abstract_mesh(make_mesh(MeshConfig(context=2), 1, 1).abstract_mesh):
        named["even lengths, not 6 by 2 and 6"] = why_not_cudnn(*half[:2], None, 0.3)
    with use_abstract_mesh(make_mesh(MeshConfig(model=2), 1, 1).abstract_mesh):
        named["1 key-value heads whole"] = why_not_cudnn(half[0], half[1][:, :, :1], None, 0.3)
    for part, reason in named.items():
        assert part in reason
    asked = []

    def kernel(q, k, v, **given):
        asked.append(given)
        return q

    monkeypatch.setattr(jax.nn, "dot_product_attention", kernel)
    monkeypatch.setattr(f"{FUSED}.has_cuda", lambda: True)
    warning = "cuDNN takes bfloat16 or float16, not float32; it is computed exactly"
    with compiled_for("cuda"):
        fused_attention(*half, queries=TOKENS, keys=TOKENS, mask=Padding())
        with pytest.warns(UserWarning, match=warning):
            attended = fused_attention(Q, K, V, queries=TOKENS, keys=TOKENS, mask=Padding())
        fused_attention(Q[:, :1], K, V, queries=Tokens.first(1), keys=TOKENS, own_keys=False)
    assert attended.scores is None
    np.testing.assert_array_equal(attended.out, exactly(Q, K, V, queries=TOKENS, keys=TOKENS, mask=Padding()))
    assert [given["implementation"] for given in asked] == ["cudnn"]
    assert asked[0]["mask"].shape == (2, 1, 6, 6)
    assert not asked[0]["is_causal"]


FIRST = Tokens.first(6)


@pytest.mark.parametrize(
    ("tokens", "mask", "own_keys", "told"),
    [
        (FIRST, Causal(), True, "causal"),
        (FIRST, Causal() & Full(), True, "causal"),
        (FIRST, Full(), True, None),
        (FIRST, Causal() & Window(2), True, "array"),
        (FIRST, Causal() | Prefix(2), True, "array"),
        (FIRST, Causal(), False, "array"),
        (Tokens.at(jnp.asarray([0, 2, 1, 3, 5, 4])), Causal(), True, "array"),
        (Tokens.first(6, valid=VALID), Causal() & Padding(), True, "array"),
    ],
)
def test_the_kernel_is_told_that_a_mask_is_causal_where_it_is(tokens, mask, own_keys, told, monkeypatch):
    """Its values and gradients, with XLA in its place, are those of exact attention; so are those of its stand-in."""
    asked = []

    def kernel(*arrays, implementation, **given):
        asked.append("array" if given["mask"] is not None else "causal" if given["is_causal"] else None)
        return by_xla(*arrays, implementation="xla", **given)

    def loss(arrays, function, **more):
        out = function(*arrays, queries=tokens, keys=tokens, mask=mask, scale=0.3, **more)
        return jnp.sin(out).sum(), out

    by_xla = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", kernel)
    exact = jax.grad(loss, has_aux=True)((Q, K, V), exactly)
    for with_cuda in (True, False):
        monkeypatch.setattr(f"{FUSED}.has_cuda", lambda with_cuda=with_cuda: with_cuda)
        ours = jax.grad(loss, has_aux=True)((Q, K, V), by_cudnn, own_keys=own_keys)
        chex.assert_trees_all_close(ours, exact, atol=1e-5)
    assert asked == [told]


@pytest.mark.usefixtures("without_cuda")
def test_a_device_with_later_queries_has_the_mask_as_an_array():
    """Its first query is not at the place of the first key."""
    sides = {"queries": FIRST, "keys": FIRST, "mask": Causal(), "scale": 0.3}
    mesh = make_mesh(MeshConfig(replica=1, data=1, context=2), 1, 2)
    with use_abstract_mesh(mesh.abstract_mesh):
        there = jax.device_put((Q, K, V), jax.NamedSharding(mesh, jax.P(None, "context")))
        out = jax.jit(lambda *arrays: by_cudnn(*arrays, **sides, own_keys=True))(*there)
    np.testing.assert_allclose(out, exactly(Q, K, V, **sides), atol=1e-6)


def test_what_no_kernel_computes_is_refused():
    """Other weights than those of softmax, and values of another size than keys."""
    arguments = {"queries": TOKENS, "keys": TOKENS}
    with pytest.raises(ValueError, match="fused attention: no kernel for"):
        fused_attention(Q, K, V, **arguments, weigh=ReLUWeigh())
    with pytest.raises(ValueError, match=r"fused attention: no kernel for None of <function .*> scores"):
        fused_attention(Q, K, V, **arguments, score=lambda scores, *_: scores)
    with pytest.raises(ValueError, match=r"keys .* and values .* differ"):
        fused_attention(Q, K, V[..., :4], **arguments)
