"""Programs evaluated with NumPy: each operation is that of JAX, and every float can have 64 bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from transformer.analysis.programs import called
from transformer.core.arrays import dense
from transformer.testing.evaluation import Evaluated
from transformer.testing.numpy_operations import OPERATIONS

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3, 4)).astype(np.float32)
I, J = RNG.integers(1, 9, size=(2, 3, 4), dtype=np.int32) * np.int32([[1, -1, 1, -1]])
UNARY = (
    *("exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "sqrt", "cbrt", "square", "rsqrt"),
    *("floor", "ceil", "round", "sign", "neg", "abs", "is_finite", "logistic", "erf"),
)
BINARY = ("add", "sub", "mul", "div", "rem", "max", "min", "pow", "eq", "ne", "lt", "le", "gt", "ge")
PLACES = np.int32([[2, 0], [0, 2], [1, 1]])
OUTSIDE = jnp.asarray(X)


def _windows_of(x, i):
    """Two by two numbers at two places, of which one lies over an end."""
    return jax.vmap(lambda i: lax.dynamic_slice(x, (i[0], i[1] + 1), (2, 2)))(i)


EXAMPLES = {
    **{name: (getattr(lax, name), np.abs(X) + 0.1) for name in UNARY},
    **{name: (getattr(lax, name), np.abs(X), Y) for name in BINARY},
    **{f"{name} of integers": (getattr(lax, name), I, J) for name in ("add", "div", "rem", "max", "lt")},
    **{name: (getattr(lax, f"bitwise_{name}"), I, J) for name in ("and", "or", "xor")},
    **{
        f"reduce_{name}": (lambda x, name=name: getattr(jnp, name)(x, axis=1), X)
        for name in ("sum", "prod", "max", "min")
    },
    "reduce_and": (lambda x: x.all(0), X > 0),
    "reduce_or": (lambda x: x.any(0), X > 0),
    **{name: (lambda x, name=name: getattr(lax, name)(x, axis=1), X) for name in ("cumsum", "cumprod", "cummin")},
    "cummax backwards": (lambda x: lax.cummax(x, axis=0, reverse=True), X),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, axis=1), X),
    "not": (lax.bitwise_not, X > 0),
    "not of integers": (lax.bitwise_not, I),
    "add_any": (jax.grad(lambda x: (jnp.sin(x) * jnp.exp(x)).sum()), X),
    "select_n": (lax.select_n, X > 0, X, Y),
    "select_n of three": (lax.select_n, np.abs(I) % 3, X, Y, X - Y),
    "clamp": (lambda x, y: lax.clamp(y, x, y + 1), X, Y),
    "copy": (jnp.copy, X),
    "name": (lambda x: checkpoint_name(x, "x"), X),
    "optimization_barrier": (lambda x, y: lax.optimization_barrier((x, y)), X, Y),
    "shift_right_logical": (lax.shift_right_logical, I, np.abs(J)),
    "erf_inv": (lax.erf_inv, np.tanh(X)),
    "integer_pow": (lambda x: x**3 + x**-2, X),
    "round to even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.float32([0.5, 1.5, -2.5, 0.7])),
    "convert_element_type": (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), X),
    "convert_element_type to integers": (lambda x: x.astype(jnp.int32), np.float32([-1.7, 2.7, 1e20, np.nan])),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 3, 5, 4), (1, 3)), X),
    "reshape": (lambda x: x.reshape(2, 6), X),
    "reshape of transposed axes": (lambda x: lax.reshape(x, (2, 6), (1, 0)), X),
    "squeeze": (lambda x: lax.squeeze(x, (0,)), X[:1]),
    "transpose": (lambda x: lax.transpose(x, (1, 0)), X),
    "rev": (lambda x: lax.rev(x, (1,)), X),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), X, Y),
    "stack": (lambda x, y: jnp.stack([x, y], 1), X, Y),
    "unstack": (lambda x: jnp.unstack(x, axis=1), X),
    "split": (lambda x: lax.split(x, (1, 0, 3), 1), X),
    "tile": (lambda x: jnp.tile(x, (2, 3)), X),
    "iota": (lambda: lax.broadcasted_iota(jnp.int32, (2, 3, 4), 1),),
    "slice": (lambda x: x[::2, 1:3], X),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, -9), (2, 2)), X, np.int32(2)),
    "dynamic_update_slice": (lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :2], (i, 1)), X, Y, np.int32(2)),
    "pad": (lambda x: lax.pad(x, x[0, 0], ((1, -1, 2), (-2, 3, 1))), X),
    "pad between elements": (lambda x: lax.pad(x, x[0, 0], ((0, 0, 1), (0, 0, 0))), X),
    "pad of nothing": (lambda x: lax.pad(x[:0], x[0, 0], ((1, 1, 2), (0, 0, 0))), X),
    "dot_general": (lambda x, y: jnp.einsum("bij,bkj->bik", x[None], y[None]), X, Y),
    "dot_general of vectors": (lambda x, y: jnp.vdot(x, y), X[0], Y[1]),
    "gather": (lambda x, i: x[i], X, PLACES),
    "gather of parts": (lambda x, i: x[i[:, 0], 1:3][..., None], X, PLACES),
    "gather along an axis": (lambda x, i: jnp.take_along_axis(x, i, 1), X, PLACES),
    "gather clipped": (lambda x, i: jnp.take(x, i + 2, axis=1, mode="clip"), X, PLACES),
    "gather or nan": (lambda x, i: x.at[i + 1].get(mode="fill", wrap_negative_indices=False), X, PLACES),
    "gather or 7": (lambda x, i: x.at[:, i + 2].get(mode="fill", fill_value=7), X, PLACES),
    "gather of integers": (lambda x, i: x.at[i + 2].get(mode="fill"), I, PLACES),
    "gather of windows": (_windows_of, X, PLACES),
    "scatter": (lambda x, i: x.at[:, i[0]].set(2.5), X, PLACES),
    "scatter into a constant": (lambda i: OUTSIDE.at[:, i[0]].set(2.5), PLACES),
    "scatter of rows": (lambda x, y, i: x.at[i[:, 0]].set(y, mode="drop"), X, Y, PLACES + 1),
    "scatter-add": (lambda x, y, i: x.at[i, 1].add(y[0, :2]), X, Y, PLACES),
    "scatter-add of nothing": (lambda x, i: x.at[i + 2].add(1.0, mode="drop"), X, PLACES),
    "scatter-add clipped": (lambda x, i: x.at[i + 2].add(1.0, mode="clip"), X, PLACES),
    "scatter-add along an axis": (jax.grad(lambda x, i: (jnp.take_along_axis(x, i, 1) ** 2).sum()), X, PLACES),
    "scatter-add of windows": (jax.grad(lambda x, i: (_windows_of(x, i) ** 2).sum()), X, PLACES),
    "dot_general of two axes": (lambda x, y: jnp.einsum("ij,aijb->ba", x, y[None, ..., None]), X, Y),
}


def operations(program):
    """The names of the operations of a program, and of those that it calls."""
    for step in program.eqns:
        yield step.primitive.name
        if (inner := called(step)) is not None:
            yield from operations(inner[0])


def inputs_of(name, half):
    """The inputs of an example, with floats of float32 or bfloat16."""
    return [x.astype(jnp.bfloat16) if half and x.dtype == np.float32 else x for x in EXAMPLES[name][1:]]


@functools.cache
def expected(half):
    """The outputs of all examples, compiled as one program."""
    inputs = {name: inputs_of(name, half) for name in EXAMPLES}
    return jax.jit(lambda inputs: {name: EXAMPLES[name][0](*inputs[name]) for name in EXAMPLES})(inputs)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_an_operation_is_that_of_jax(name, half):
    """By value, shape and dtype."""
    function, inputs = EXAMPLES[name][0], inputs_of(name, half)
    assert name.split()[0] in operations(jax.make_jaxpr(function)(*inputs))
    pairs = zip(*map(jax.tree.leaves, (Evaluated(function)(*inputs), expected(half)[name])), strict=True)
    for left, right in pairs:
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        tolerance = 1e-2 if half else 1e-5
        np.testing.assert_allclose(*(np.asarray(a, np.float64) for a in (left, right)), rtol=tolerance, atol=tolerance)


def test_every_operation_has_an_example():
    """What is evaluated here rather than in JAX is tested here."""
    assert {name.split()[0] for name in EXAMPLES} == set(OPERATIONS)


def test_bits_are_kept():
    """Those of integers and of floats, also where these have 64 bits: the mask leaves 8 bits after the first."""

    def leading(x):
        bits = lax.bitcast_convert_type(x, jnp.uint32) & np.uint32(0xFFFFF000)
        return lax.bitcast_convert_type(bits, jnp.float32)

    np.testing.assert_array_equal(Evaluated(leading)(X), jax.jit(leading)(X))
    assert (Evaluated(leading)(X) != X).all()
    np.testing.assert_allclose(Evaluated(leading).in_float64(X), X, rtol=2**-8)


def every_kind(x, table, tokens):
    """Calls, a loop of each kind, a choice, a scatter, a rule of its own for gradients, and a rounding."""
    x = jax.checkpoint(jax.nn.silu)(dense(x, table.T @ table))
    x, sums = lax.scan(lambda carry, row: (carry + row, (carry * row).sum()), x, jnp.stack([x, 2 * x]), reverse=True)
    x = jnp.sin(x) + lax.while_loop(lambda i: i < tokens.max(), lambda i: i + 2, 0).astype(x.dtype)
    x = lax.cond(tokens[0] > 0, lambda x: x / 3, lambda x: x * 3, x)
    return (x.at[tokens].add(1.25).astype(jnp.bfloat16).astype(jnp.float32) ** 2).sum() + sums.sum()


def written_out(x, table, tokens):
    """`every_kind` without loops and roundings."""
    x = x @ (table.T @ table)
    x = x / (1 + jnp.exp(-x))
    sums = (x * 2 * x).sum() + (3 * x * x).sum()
    x = jnp.sin(4 * x) + 2
    return ((x / 3).at[tokens].add(1.25) ** 2).sum() + sums


TABLE, TOKENS = RNG.normal(size=(5, 4)).astype(np.float32), np.array([2, 0, 2], np.int32)


def test_a_program_is_that_of_jax():
    """The answer and the gradient of a program with control flow, in the precision it is written in."""
    function = jax.value_and_grad(every_kind)
    for found, expected in zip(Evaluated(function)(X, TABLE, TOKENS), jax.jit(function)(X, TABLE, TOKENS), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_random_keys_and_empty_loops():
    """Keys go through operations and loops; a loop of no steps gives empty rows."""

    def draws(key):
        keys = jax.random.split(key, 6).reshape(2, 3)
        _, numbers = lax.scan(lambda carry, row: (carry, jax.random.normal(row[1], 5)), 0, keys)
        one = jax.random.uniform(key)
        empty = lax.scan(lambda carry, x: (carry, x + 1), 0, jnp.zeros((0, 2)))[1]
        return numbers, one, jax.random.key_data(keys), empty

    found, expected = Evaluated(draws)(jax.random.key(3)), jax.jit(draws)(jax.random.key(3))
    for left, right in zip(found, expected, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, rtol=1e-6)


def test_every_float_has_64_bits():
    """The answer and the gradient of float64 inputs, to more digits than float32 has; integers stay."""
    program = Evaluated(jax.value_and_grad(every_kind))
    found, gradient = program.in_float64(X, TABLE, TOKENS)
    with jax.enable_x64(True):
        function = jax.value_and_grad(lambda x, table: written_out(x, table, TOKENS))
        expected, expected_gradient = function(*(jnp.asarray(a.astype(np.float64)) for a in (X, TABLE)))
    assert found.dtype == gradient.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-11)
    assert abs(found / program(X, TABLE, TOKENS)[0] - 1) > 1e-9
