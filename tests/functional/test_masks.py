"""Masks: literal tables of who attends to whom, the algebra, and evaluation by blocks."""

import operator
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.core.errors import ConfigError
from transformer.functional.attention import attention
from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.masks import (
    And,
    Arbitrary,
    BlockDiffusion,
    Causal,
    Full,
    Mask,
    Not,
    Or,
    OwnBeams,
    Padding,
    Prefix,
    Segment,
    Tokens,
    Window,
    allows,
)
from transformer.functional.sparse_masks import Blocks, Columns, First, RandomBlocks, Strides

SEGMENTS = jnp.array([[1, 1, 2, 2, 2]])
VALID = jnp.array([[True, True, True, True, False]])
TOKENS = Tokens.at(jnp.arange(5), SEGMENTS, VALID)


def table(mask, queries=TOKENS, keys=TOKENS):
    """The mask as rows of 0 and 1, one row per query; of a batch, one block of rows per sequence."""
    allowed = mask(queries, keys)
    assert allowed.dtype == bool
    allowed = np.broadcast_to(allowed, (allowed.shape[0], 1, queries.length, keys.length))
    return [" ".join("".join(str(int(a)) for a in row) for row in rows) for rows in allowed[:, 0]]


TABLES = [
    (Full(), "11111 11111 11111 11111 11111"),
    (Causal(), "10000 11000 11100 11110 11111"),
    (Window(1), "10000 01000 00100 00010 00001"),
    (Window(2), "11000 11100 01110 00111 00011"),
    (Strides(2), "10101 01010 10101 01010 10101"),
    (Blocks(2, 0), "11000 11000 00110 00110 00001"),
    (Blocks(2, 1), "11110 11110 11111 11111 00111"),
    (Columns(3, 1), "00100 00100 00100 00100 00100"),
    (First(1), "11111 10000 10000 10000 10000"),
    (RandomBlocks(2, 0.0, 0), "00000 00000 00000 00000 00000"),
    (RandomBlocks(2, 1.0, 0), "11111 11111 11111 11111 11111"),
    (Prefix(2), "11000 11000 11000 11000 11000"),
    (Prefix(0), "00000 00000 00000 00000 00000"),
    (Padding(), "11110 11110 11110 11110 11110"),
    (Segment(), "11000 11000 00111 00111 00111"),
    (Causal() & Window(2), "10000 11000 01100 00110 00011"),
    (Causal() | Prefix(3), "11100 11100 11100 11110 11111"),
    (Causal() & Segment(), "10000 11000 00100 00110 00111"),
    (Causal() & Segment() & Padding(), "10000 11000 00100 00110 00110"),
    ((Causal() | Prefix(2)) & Segment(), "11000 11000 00100 00110 00111"),
    (~Causal(), "01111 00111 00011 00001 00000"),
    (~Causal() & Segment(), "01000 00000 00011 00001 00000"),
    (~(Causal() & Window(2)), "01111 00111 10011 11001 11100"),
    (~Full(), "00000 00000 00000 00000 00000"),
]


@pytest.mark.parametrize(("mask", "rows"), TABLES, ids=[str(m) for m, _ in TABLES])
def test_literal_table(mask, rows):
    """Each mask and combination is the table a reader would draw."""
    assert table(mask) == [rows]


def test_random_blocks():
    """The share is that of the pairs of blocks; a block is allowed whole; another seed draws others."""
    tokens = Tokens.at(jnp.arange(800))
    allowed, other = (np.asarray(RandomBlocks(4, 0.3, seed)(tokens, tokens))[0, 0] for seed in (0, 1))
    blocks = allowed.reshape(200, 4, 200, 4).any((1, 3))
    np.testing.assert_array_equal(allowed, np.kron(blocks, np.ones((4, 4), bool)))
    assert abs(blocks.mean() - 0.3) < 0.01
    assert abs((allowed & other).mean() - 0.09) < 0.01
    assert not np.array_equal(blocks, blocks.T)


def test_blocks_are_denoised_given_the_clean_ones_before():
    """Rows and columns decide: the two halves have the same positions."""
    tokens = Tokens.at(jnp.array([0, 1, 2, 0, 1, 2]))
    assert table(BlockDiffusion(3, 2), tokens, tokens) == ["110000 110000 001110 000110 000110 000111"]


def test_positions_decide_not_indices():
    """A cached step, a reset position and a gap in the positions are seen by causal, window and prefix."""
    step, keys = Tokens.at(jnp.array([3])), Tokens.at(jnp.arange(5))
    assert table(Causal(), step, keys) == ["11110"]
    assert table(Causal() & Window(2), step, keys) == ["00110"]
    packed = Tokens.at(jnp.array([0, 1, 0, 1]))
    assert table(Causal(), packed, packed) == ["1010 1111 1010 1111"]
    gaps = Tokens.at(jnp.array([0, 5, 6]))
    assert table(Window(2), gaps, gaps) == ["100 011 011"]
    assert table(Prefix(6), step, gaps) == ["110"]


def test_one_table_per_sequence():
    """Positions, segments, validity and prefix lengths may differ between the sequences of a batch."""
    tokens = Tokens.at(jnp.array([[0, 1, 2], [0, 0, 1]]), jnp.array([[1, 1, 1], [1, 2, 2]]))
    assert table(Causal(), tokens, tokens) == ["100 110 111", "110 110 111"]
    assert table(Segment(), tokens, tokens) == ["111 111 111", "100 011 011"]
    assert table(Prefix(jnp.array([0, 1])), tokens, tokens) == ["000 000 000", "110 110 110"]
    valid = tokens._replace(valid=jnp.array([[True, True, False], [False, True, True]]))
    assert table(Padding(), tokens, valid) == ["110 110 110", "011 011 011"]


def test_beams_are_a_tree():
    """Token 0 begins both beams, which go on with 1 and 2; in the second sequence 3 and 4 both continue 1."""
    first, second = ["11010", "10101"], ["11010", "11001"]
    beams = jnp.array([[[digit == "1" for digit in row] for row in rows] for rows in (first, second)])
    tokens = Tokens.at(jnp.array([0, 1, 1, 2, 2]))._replace(beams=beams)
    assert table(Causal() & OwnBeams(), tokens, tokens) == [
        "10000 11000 10100 11010 10101",
        "10000 11000 00000 11010 11001",
    ]
    newest = Tokens.at(jnp.array([3, 3]))._replace(beams=jnp.array([[[True, False], [False, True]]] * 2))
    assert table(OwnBeams(), newest, tokens) == ["11010 10101", "11010 11001"]


def test_what_tokens_do_not_say_allows_everything():
    """Tokens that do not say their segment, validity or beams are one document without padding."""
    plain = Tokens.at(jnp.arange(2))
    for mask in (Segment(), Padding(), OwnBeams()):
        assert table(mask, plain, plain) == ["11 11"]
    assert table(Segment(), TOKENS, plain) == ["11 11 11 11 11"]


@pytest.mark.parametrize("shape", [(5, 5), (2, 1, 5, 5), (2, 1, 1, 5), (1, 2, 5, 1), (1, 5)])
def test_arbitrary_broadcasts(shape):
    """An arbitrary mask is its array, broadcast to (B, H, L, S)."""
    array = np.random.default_rng(0).random(shape) < 0.5
    allowed = Arbitrary(jnp.asarray(array))(TOKENS, TOKENS)
    np.testing.assert_array_equal(np.broadcast_to(allowed, (2, 2, 5, 5)), np.broadcast_to(array, (2, 2, 5, 5)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (jnp.ones((3, 3), bool), r"is \(3, 3\), not \(…, 5, 5\) or larger"),
        (jnp.ones((2, 1, 5, 4), bool), r"is \(2, 1, 5, 4\), not \(…, 5, 5\) or larger"),
        (jnp.ones(5, bool), r"is \(5,\), not"),
        (jnp.zeros((5, 5)), "is float32, not bool, True where one attends"),
    ],
    ids=range(4),
)
def test_an_array_that_is_no_mask_of_these_tokens(array, message):
    """It is never looked up beyond its end, and scores to be added are no truth values."""
    with pytest.raises(ConfigError, match=f"^mask: the array of Arbitrary {message}"):
        Arbitrary(array)(TOKENS, TOKENS)


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_a_window_has_tokens(size):
    with pytest.raises(ConfigError, match=rf"^Window\.size: {size} is not a positive whole number$"):
        Window(size)


def test_a_window_may_be_traced():
    found = jax.jit(lambda size: allows(Window(size), TOKENS, TOKENS))(2)
    np.testing.assert_array_equal(found, allows(Window(2), TOKENS, TOKENS))


def test_an_array_is_no_mask():
    with pytest.raises(ConfigError, match=r"^mask: a ndarray is no mask; Arbitrary\(array\) is that of an array$"):
        allows(np.ones((5, 5), bool), TOKENS, TOKENS)  # pyright: ignore[reportArgumentType] wrong on purpose


def test_a_mask_is_joined_with_masks():
    for join in (operator.and_, operator.or_):
        with pytest.raises(ConfigError, match=r"^mask: a bool is no mask; Arbitrary\(array\) is that of an array$"):
            join(Causal(), True)


def test_what_is_said_of_tokens_is_of_all_of_them():
    with pytest.raises(ConfigError, match=r"^valid: \(2, 3\) is not of 5 tokens$"):
        Tokens.first(5, valid=jnp.ones((2, 3), bool))
    with pytest.raises(ConfigError, match=r"^segments: \(1, 4\) is not of 5 tokens$"):
        Tokens.at(jnp.arange(5), segments=jnp.ones(4, jnp.int32))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"valid": np.ones(5, np.int32)}, "valid: int32 is not boolean, False for padding; valid != 0 may be meant"),
        ({"valid": np.ones(5, np.float32)}, "valid: float32 is not boolean"),
        ({"segments": np.ones(5, np.float32)}, "segments: float32 is not an integer for each token"),
        ({"positions": np.arange(5) / 2.0}, r"positions: float(32|64) is not an integer for each token"),
        ({"positions": np.zeros((2, 3, 5), np.int32)}, r"positions: an array \(2, 3, 5\), not one \(L,\) or \(B, L\)"),
    ],
)
def test_a_mask_of_numbers_and_positions_between_tokens_are_refused(rows, message):
    """A 2 in a mask of bits is neither true nor false, and half a position would be cut off."""
    with pytest.raises(ConfigError, match=f"^{message}"):
        Tokens.at(**{"positions": np.arange(5), **rows})


LEAVES = [
    Causal(),
    Window(2),
    Prefix(jnp.array([1, 3])),
    Blocks(2, 1),
    RandomBlocks(2, 0.5, 0),
    Padding(),
    Segment(),
    Arbitrary(jnp.asarray(np.random.default_rng(1).random((2, 1, 5, 5)) < 0.5)),
    Full(),
]
MASKS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda m: ~m),
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=4,
)
BATCH = Tokens.at(
    jnp.array([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2]]),
    jnp.array([[1, 1, 1, 1, 1], [1, 1, 2, 2, 2]]),
    jnp.array([[True, True, True, False, False], [True, True, True, True, True]]),
)


def whole(mask):
    return np.broadcast_to(mask(BATCH, BATCH), (2, 1, 5, 5))


@given(MASKS, st.integers(0, 3), st.integers(0, 3))
def test_block_is_slice_of_whole(mask, i, j):
    """Any combination, asked for one block, answers with that block of its table."""
    block = mask(BATCH.block(i, 2), BATCH.block(j, 2))
    expected = whole(mask)[:, :, i : i + 2, j : j + 2]
    np.testing.assert_array_equal(np.broadcast_to(block, expected.shape), expected)


@given(MASKS, MASKS)
def test_algebra_is_elementwise(a, b):
    """`&`, `|` and `~` are those of the tables."""
    np.testing.assert_array_equal(whole(a & b), whole(a) & whole(b))
    np.testing.assert_array_equal(whole(a | b), whole(a) | whole(b))
    np.testing.assert_array_equal(whole(~a), ~whole(a))


def test_masks_are_arguments_of_compiled_functions():
    """Arrays in a mask are traced, structure and static sizes are not: one program per structure."""
    traces = []
    compiled = jax.jit(lambda mask: traces.append(mask) or mask(BATCH, BATCH))
    for mask in (Causal() | Prefix(jnp.array([1, 3])), Causal() | Prefix(jnp.array([2, 0]))):
        np.testing.assert_array_equal(np.broadcast_to(compiled(mask), (2, 1, 5, 5)), whole(mask))
    assert len(traces) == 1
    assert jax.tree.leaves(Window(3)) == []


@dataclass(frozen=True)
class Every(Mask):
    """Keys at distances that `step` divides, of queries that are `chosen`: a mask of one's own, with no decorator."""

    step: int
    chosen: jax.Array

    def __call__(self, queries, keys):
        apart = (queries.positions[:, :, None] - keys.positions[:, None, :]) % self.step == 0
        return (apart & self.chosen[queries.indices][:, None])[:, None]


def test_a_mask_of_ones_own_goes_through_compiled_functions():
    """Its arrays are traced, its numbers are not; chunked attention cuts it as the others."""
    mask = Causal() & Every(2, jnp.arange(5) > 0)
    compiled = jax.jit(lambda mask: mask(BATCH, BATCH))
    np.testing.assert_array_equal(np.broadcast_to(compiled(mask), (2, 1, 5, 5)), whole(mask))
    assert len(jax.tree.leaves(mask)) == 1

    @dataclass(frozen=True)
    class Later(Mask):
        """Its annotation is a text, as all are in a module that evaluates them later."""

        step: "int"

    assert jax.tree.leaves(Later(2)) == []

    @dataclass(frozen=True)
    class Checked(Mask):
        """It looks at its fields, has one that is made of them, and one that is said to be no array."""

        size: int
        names: tuple[str, ...] = field(default=("a",), metadata={"static": True})
        double: int = field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "double", 2 * self.size)

    assert jax.tree.leaves(Checked(2)) == []
    jax.jit(lambda mask: jnp.zeros(mask.size))(Checked(2))
    q = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 2, 4)), jnp.float32)
    given = {"queries": BATCH, "keys": BATCH, "mask": mask}
    exact, chunked = attention(q, q, q, **given), chunked_attention(q, q, q, **given, block=2)
    np.testing.assert_allclose(chunked.out, exact.out, atol=1e-6)


class Returned(NamedTuple):
    """A mask that is what it returns."""

    array: jax.Array

    def __call__(self, queries, keys):
        return self.array


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (jnp.where(jnp.tri(5, dtype=bool), 0.0, -jnp.inf), "float32, not bool, True where a query attends"),
        (jnp.tri(5, dtype=jnp.int32), "int32, not bool"),
        (
            jnp.ones((2, 5, 5), bool),
            r"\(2, 5, 5\), not \(L, S\) or \(B or 1, H or 1, L, S\); \[:, None\]",
        ),
    ],
    ids=range(3),
)
def test_what_a_mask_of_ones_own_returns(array, message):
    """What is added to scores would be taken for its opposite, and sequences for heads."""
    q = jnp.ones((2, 5, 2, 4))
    for mask in (Returned(array), And(Full(), Returned(array)), Or(Full(), Returned(array)), Not(Returned(array))):
        for function in (attention, chunked_attention):
            with pytest.raises(ConfigError, match=f"^mask: Returned returns {message}"):
                function(q, q, q, queries=BATCH, keys=BATCH, mask=mask)


def test_padding_is_where_the_real_token_before_it_is():
    real = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]], bool)
    tokens = Tokens.at([[7, 0, 8, 0, 0], [0, 1, 0, 2, 3]], [[1, 0, 2, 0, 0], [0, 3, 0, 3, 4]], real)
    placed = tokens.as_before()
    assert placed.positions.tolist() == [[7, 7, 8, 8, 8], [1, 1, 1, 2, 3]]
    assert placed.segments.tolist() == [[1, 1, 2, 2, 2], [3, 3, 3, 3, 4]]
    np.testing.assert_array_equal(placed.valid, tokens.valid)


def test_block_start_may_be_traced():
    """A loop can slice tokens by its index."""
    starts = jnp.arange(4)
    blocks = jax.lax.map(lambda i: Causal()(BATCH.block(i, 2), BATCH), starts)
    for i in range(4):
        np.testing.assert_array_equal(blocks[i], whole(Causal())[:, :, i : i + 2])


def test_a_mask_without_call_says_so():
    """Forgetting `__call__` in a new mask names the class."""

    class Unfinished(Mask):
        pass

    with pytest.raises(NotImplementedError, match="Unfinished"):
        Unfinished()(TOKENS, TOKENS)


def test_tokens_of_one_sequence():
    """Without a batch axis, in each of them."""
    alone = Tokens.at(jnp.arange(3), jnp.array([0, 0, 1]), jnp.array([True, True, False]))
    allowed = (Segment() & Padding())(alone, alone)
    np.testing.assert_array_equal(allowed[0, 0], [[1, 1, 0], [1, 1, 0], [0, 0, 0]])
