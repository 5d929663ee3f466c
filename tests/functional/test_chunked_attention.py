"""Chunked attention: the values and gradients of exact attention, and blocks that are never touched.

Which mask and which bias is a traced number here, so that one compiled program per shape serves all.
"""

import functools
import math
from dataclasses import dataclass, field

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jax.tree_util import Partial

from transformer.functional.attention import attention
from transformer.functional.biases import LinearDistance
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.masks import Arbitrary, Causal, Full, Mask, Padding, Prefix, Segment, Tokens, Window
from transformer.functional.normalizers import Softmax
from transformer.mixers.attention.score_mods import SoftCap

BATCH, SIZE, VALUE_SIZE = 2, 4, 3


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def random_table(*shape):
    return jnp.asarray(np.random.default_rng(9).random(shape) < 0.4)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Choice(Mask):
    """The mask number `which` of several."""

    which: jax.Array
    masks: list[Mask]

    def __call__(self, queries, keys):
        shape = (BATCH, self.masks[-1].allowed.shape[1], queries.length, keys.length)
        return jnp.stack([jnp.broadcast_to(mask(queries, keys), shape) for mask in self.masks])[self.which]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Table:
    """A learned bias per head, query index and key index; `outside` is the answer beyond the table."""

    table_HLS: jax.Array
    outside: float = field(default=0.0, metadata={"static": True})

    def __call__(self, queries, keys):
        rows, columns = queries.indices[:, None], keys.indices[None, :]
        return self.table_HLS.at[:, rows, columns].get(mode="fill", fill_value=self.outside)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weighted:
    """A weighted sum of biases; the weights are differentiated too."""

    weights: jax.Array
    biases: list

    def __call__(self, queries, keys):
        return sum(self.weights[i] * bias(queries, keys) for i, bias in enumerate(self.biases))


MASKS = {
    "full": lambda heads, queries, keys: Full(),
    "causal": lambda heads, queries, keys: Causal(),
    "window": lambda heads, queries, keys: Window(2),
    "sliding": lambda heads, queries, keys: Causal() & Window(3),
    "prefix": lambda heads, queries, keys: Causal() | Prefix(jnp.array([1, 3])),
    "padding": lambda heads, queries, keys: Causal() & Padding(),
    "packed": lambda heads, queries, keys: Causal() & Segment(),
    "future": lambda heads, queries, keys: ~Causal(),
    "nothing": lambda heads, queries, keys: ~Full(),
    "random": lambda heads, queries, keys: Arbitrary(random_table(BATCH, heads, queries, keys)),
}
BIASES = {"none": [0.0, 0.0], "alibi": [1.0, 0.0], "table": [0.0, 1.0], "both": [0.5, -1.0]}
# heads, key-value heads, queries, keys, block: no two lengths are multiples of one block.
SHAPES = [
    (2, 2, 7, 7, 3),
    (4, 2, 5, 5, 2),
    (3, 1, 7, 7, 4),
    (4, 2, 3, 8, 3),
    (2, 2, 9, 4, 4),
    (3, 1, 1, 7, 2),
    (4, 1, 6, 6, 64),
]


def tokens(length):
    """Two sequences: one with padding at its end, one of two packed documents with reset positions."""
    index = np.arange(length, dtype=np.int32)
    positions = np.stack([index, np.where(index < 3, index, index - 3)])
    sides = Tokens(positions, index, np.stack([index * 0, index // 3]), np.stack([index < 4, index >= 0]))
    return jax.tree.map(jnp.asarray, sides)


@functools.cache
def compiled(shape):
    """(mask number, bias weights) to outputs and gradients of exact and of chunked attention."""
    heads, kv_heads, queries, keys, block = shape
    masks = [make(heads, queries, keys) for make in MASKS.values()]
    biases = [
        LinearDistance(jnp.asarray(np.linspace(0.2, 1, heads), jnp.float32)),
        Table(normal(4, heads, queries, keys)),
    ]
    q = normal(0, BATCH, queries, heads, SIZE)
    k, v = normal(1, BATCH, keys, kv_heads, SIZE), normal(2, BATCH, keys, kv_heads, VALUE_SIZE)
    dout = normal(5, BATCH, queries, heads, VALUE_SIZE)

    def run(implementation, which, weights):
        def function(q, k, v, bias, scale):
            sides = {"queries": tokens(queries), "keys": tokens(keys)}
            return implementation(q, k, v, mask=Choice(which, masks), bias=bias, scale=scale, **sides).out

        out, pull_back = jax.vjp(function, q, k, v, Weighted(weights, biases), jnp.float32(0.4))
        return out, pull_back(dout)

    in_blocks = functools.partial(chunked_attention, block=block)

    def both(which, weights):
        return run(attention, which, weights), run(in_blocks, which, weights)

    return jax.jit(both)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_exact(mask, bias, shape):
    """Values and the gradients of queries, keys, values, every array of the bias, and the scale."""
    exact, chunked = jax.device_get(compiled(shape)(list(MASKS).index(mask), np.array(BIASES[bias], np.float32)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(exact))
    chex.assert_trees_all_close(chunked, exact, atol=2e-5, rtol=1e-4)
    # The comparison is of something: only a mask that allows nothing gives zeros.
    assert exact[0].any() == (mask != "nothing")


def with_gradients(function, *arguments):
    """The output and the gradients of its sum, from one compiled program."""

    def run(*arguments):
        out, pull_back = jax.vjp(function, *arguments)
        return out, pull_back(jnp.ones_like(out))

    return jax.device_get(jax.jit(run)(*arguments))


def sequence(length, heads=2):
    return tuple(normal(seed, BATCH, length, heads, SIZE) for seed in range(3))


def line(length, valid=None):
    return Tokens.at(np.arange(length), valid=valid)


def test_without_mask_and_bias():
    """No mask, no bias and the default scale."""
    side = line(5)
    exact, chunked = (
        with_gradients(lambda *qkv, f=f, more=more: f(*qkv, queries=side, keys=side, **more).out, *sequence(5))
        for f, more in ((attention, {}), (chunked_attention, {"block": 2}))
    )
    chex.assert_trees_all_close(chunked, exact, atol=1e-5)


def test_masked_blocks_are_not_needed():
    """A block of keys that nobody attends to may hold anything, in values and in gradients."""
    side = line(8, jnp.asarray(np.arange(8) < 6)[None])
    q, k, v = sequence(8)
    spoiled = (jnp.asarray(np.where(np.arange(8)[:, None, None] < 6, x, np.nan)) for x in (k, v))

    def run(*qkv):
        return chunked_attention(*qkv, queries=side, keys=side, mask=Padding(), block=2).out

    clean, dirty = with_gradients(run, q, k, v), with_gradients(run, q, *spoiled)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(dirty))
    chex.assert_trees_all_equal(dirty, clean)
    assert not dirty[1][1][:, 6:].any()


@pytest.mark.parametrize(("mask", "poison", "clean"), [(Causal(), (4, 8), (0, 4)), (Window(2), (4, 6), (0, 2))])
def test_blocks_beyond_the_mask_are_not_computed(mask, poison, clean):
    """Queries whose mask ends before a block do not read it: NaN there stays there."""
    side, index = line(8), np.arange(8)[:, None, None]
    q, k, v = sequence(8)
    k, v = (jnp.asarray(np.where((poison[0] <= index) & (index < poison[1]), np.nan, x)) for x in (k, v))
    out = np.asarray(chunked_attention(q, k, v, queries=side, keys=side, mask=mask, block=2).out)
    assert np.isfinite(out[:, slice(*clean)]).all()
    assert np.isnan(out[:, slice(*poison)]).all()


def test_rows_that_fill_the_last_block_have_no_say():
    """A bias that is NaN beyond its table does not reach the gradients through the filling rows."""
    side, bias = line(5), Table(normal(4, 2, 5, 5), outside=np.nan)

    def run(f, **more):
        arguments = {"queries": side, "keys": side, "mask": Causal()}
        return with_gradients(lambda q, k, v, b: f(q, k, v, bias=b, **arguments, **more).out, *sequence(5), bias)

    chex.assert_trees_all_close(run(chunked_attention, block=2), run(attention), atol=1e-5)


def test_block_size_does_not_matter():
    """Every block size gives the same numbers, those that do not divide the length too."""
    side, qkv = line(6), sequence(6)
    outs = [chunked_attention(*qkv, queries=side, keys=side, mask=Causal(), block=block).out for block in (4, 6, 256)]
    for out in outs[1:]:
        chex.assert_trees_all_close(out, outs[0], atol=1e-6)


def test_under_vmap():
    """Mapped over an axis of runs, as replicas are."""
    side = line(5)
    runs = [jnp.asarray(np.stack([x, 2 * x])) for x in sequence(5)]

    def one(q, k, v):
        return chunked_attention(q, k, v, queries=side, keys=side, mask=Causal(), block=2).out

    mapped = jax.jit(jax.vmap(one))(*runs)
    for i in range(2):
        chex.assert_trees_all_close(mapped[i], one(*(x[i] for x in runs)), atol=1e-6)


def test_no_array_of_all_scores():
    """No array of the gradient's program has both lengths as axes."""
    side = line(64)

    def run(*qkv):
        return chunked_attention(*qkv, queries=side, keys=side, mask=Causal(), block=8).out.sum()

    program = str(jax.make_jaxpr(jax.grad(run, argnums=(0, 1, 2)))(*sequence(64)))
    assert "64,64" not in program
    assert "8,8]" in program


@pytest.mark.parametrize("mask", [None, Causal()], ids=str)
def test_scores_are_capped_and_sinks_take_their_share(mask):
    """A function of the scores and a sink in every head: values and all gradients as in exact attention."""
    side, qkv = line(7), sequence(7)
    cap = Partial(SoftCap(0.5), params={})
    sink = jnp.asarray(np.random.default_rng(3).normal(size=qkv[0].shape[2]), jnp.float32)

    def run(function, q, k, v, sink, **more):
        out = function(q, k, v, queries=side, keys=side, mask=mask, score=cap, weigh=Softmax(sink), **more).out
        return (out**2).sum(), out

    ours, exact = (
        jax.jit(jax.value_and_grad(functools.partial(run, *f), argnums=(0, 1, 2, 3), has_aux=True))(*qkv, sink)
        for f in ((functools.partial(chunked_attention, block=3),), (attention,))
    )
    chex.assert_trees_all_close(ours, exact, atol=1e-5)
    assert np.abs(exact[1][3]).min() > 1e-4


def test_layers_in_a_scan_keep_nothing_of_pairs():
    """Masks are the same in all layers; they are asked for block by block all the same."""
    length, block = 64, 8
    side = Tokens.first(length)

    def layer(x_BLHK, scale):
        q_BLHK = scale * x_BLHK
        return chunked_attention(q_BLHK, q_BLHK, q_BLHK, queries=side, keys=side, mask=Causal(), block=block).out, None

    def run(x_BLHK, scales):
        return jax.lax.scan(layer, x_BLHK, scales)[0].sum()

    program = jax.make_jaxpr(jax.grad(run, argnums=(0, 1)))(jnp.ones((1, length, 1, 4)), jnp.ones(3))
    sizes = [math.prod(shape) for shape in shapes(program.jaxpr)]
    assert max(sizes) < length * length


def shapes(program):
    """Of all arrays that a program makes."""
    for step in program.eqns:
        yield from (made.aval.shape for made in step.outvars if hasattr(made.aval, "shape"))
        for inner in jaxprs_in_params(step.params):
            yield from shapes(getattr(inner, "jaxpr", inner))
