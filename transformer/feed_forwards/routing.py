"""Which experts a token goes to, and the product of tokens with the experts they go to."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from transformer.core.arrays import platform


class Routes(NamedTuple):
    """X pairs of a token and an expert, in the order of the experts."""

    tokens_X: jax.Array
    """Number of the token among all B · L, int32."""
    weights_X: jax.Array
    """Factor on the expert's output, float32."""
    sizes_E: jax.Array
    """Number of pairs of each expert, int32."""


def chosen(scores: jax.Array, top: int, bias_E: jax.Array | None = None) -> jax.Array:
    """The `top` experts (…, top) of each token with the highest sums of score and bias."""
    return lax.top_k(scores if bias_E is None else scores + bias_E, top)[1]


def of_best_groups(scores: jax.Array, num_groups: int, top: int) -> jax.Array:
    """Scores that are -∞ but in the `top` groups of neighbouring experts whose two best have the highest sums.

    (DeepSeek-V3, 2024, section 2.1.2, for groups on different nodes.)
    """
    grouped = scores.reshape(*scores.shape[:-1], num_groups, -1)
    best_two = lax.top_k(grouped, min(2, grouped.shape[-1]))[0].sum(-1)
    taken = jax.nn.one_hot(lax.top_k(best_two, top)[1], num_groups, dtype=jnp.bool).any(-2)
    return jnp.where(taken[..., None], grouped, -jnp.inf).reshape(scores.shape)


def token_choice(experts_BLX: jax.Array, weights_BLX: jax.Array, num_experts: int) -> Routes:
    """Routes every token to its experts with their weights; no token is dropped."""
    experts_X = experts_BLX.reshape(-1)
    order = jnp.argsort(experts_X, stable=True)
    sizes_E = jnp.bincount(experts_X, length=num_experts).astype(jnp.int32)
    return Routes((order // experts_BLX.shape[-1]).astype(jnp.int32), weights_BLX.reshape(-1)[order], sizes_E)


def expert_choice(logits_BLE: jax.Array, share: float, valid_BL: jax.Array | None) -> Routes:
    """Routes to every expert its likeliest `share` · n / E (rounded up) of the n real tokens of each sequence."""
    B, L, E = logits_BLE.shape
    probabilities_BEL = jnp.moveaxis(jax.nn.softmax(logits_BLE), -1, 1)
    valid_BL = jnp.ones((B, L), jnp.bool) if valid_BL is None else jnp.broadcast_to(valid_BL, (B, L))
    # Rounded once, with padding and without; .14 · 100 / 2 is 7, and a little more in floats.
    capacities = [min(n, math.ceil(share * n / E - 1e-9)) for n in range(L + 1)]
    likeliest_BEX, places_BEX = lax.top_k(jnp.where(valid_BL[:, None], probabilities_BEL, -1.0), capacities[L])
    allowed_B = jnp.asarray(capacities, jnp.int32)[valid_BL.sum(1)]
    taken_BEX = jnp.arange(capacities[L], dtype=jnp.int32) < allowed_B[:, None, None]
    tokens_EBX = jnp.swapaxes(places_BEX + jnp.arange(B, dtype=jnp.int32)[:, None, None] * L, 0, 1)
    weights_EBX = jnp.swapaxes(jnp.where(taken_BEX, likeliest_BEX, 0.0), 0, 1)
    # Always B · most; computed from an array because `ragged_dot` under vmap needs batched group sizes.
    sizes_E = (places_BEX >= 0).sum((0, 2), dtype=jnp.int32)
    return Routes(tokens_EBX.reshape(-1).astype(jnp.int32), weights_EBX.reshape(-1), sizes_E)


def shares(experts_BLX: jax.Array, num_experts: int, valid_BL: jax.Array | None) -> jax.Array:
    """The share of each expert in all choices of the real tokens, (E,)."""
    return _mean(jax.nn.one_hot(experts_BLX, num_experts, dtype=jnp.float32).sum(-2) / experts_BLX.shape[-1], valid_BL)


def imbalance(probabilities_BLE: jax.Array, shares_E: jax.Array, valid_BL: jax.Array | None) -> jax.Array:
    """E Σ fₑ Pₑ over the real tokens, 1 where experts are equally loaded (Fedus et al. 2021, equation 4)."""
    return len(shares_E) * (shares_E * _mean(probabilities_BLE, valid_BL)).sum()


def imbalance_of_sequences(
    probabilities_BLE: jax.Array, experts_BLX: jax.Array, valid_BL: jax.Array | None
) -> jax.Array:
    """The mean of `imbalance` over sequences, weighted by their tokens (DeepSeek-V3, 2024, equations 17 to 20)."""

    def of_one(probabilities_LE, experts_LX, valid_L):
        shares_E = shares(experts_LX[None], probabilities_LE.shape[-1], valid_L[None])
        return imbalance(probabilities_LE[None], shares_E, valid_L[None])

    valid_BL = jnp.broadcast_to(True if valid_BL is None else valid_BL, probabilities_BLE.shape[:2])
    tokens_B = valid_BL.sum(1).astype(jnp.float32)
    of_each_B = jax.vmap(of_one)(probabilities_BLE, experts_BLX, valid_BL)
    return (of_each_B * tokens_B).sum() / jnp.maximum(tokens_B.sum(), 1.0)


def excess(bias_E: jax.Array, shares_E: jax.Array) -> jax.Array:
    """0, whose gradient with respect to the bias of an expert is the sign of its load minus the mean load."""
    sign_E = jnp.sign(shares_E - 1 / len(bias_E))
    return ((bias_E - lax.stop_gradient(bias_E)) * lax.stop_gradient(sign_E)).sum()


def router_z(logits_BLE: jax.Array, valid_BL: jax.Array | None) -> jax.Array:
    """The mean of (log Σ exp logits)² (Zoph et al. 2022, equation 5)."""
    return _mean(jnp.square(jax.nn.logsumexp(logits_BLE, -1, keepdims=True)), valid_BL)[0]


def _mean(x_BLX: jax.Array, valid_BL: jax.Array | None) -> jax.Array:
    """The mean over the real tokens, (X,)."""
    if valid_BL is None:
        return x_BLX.mean((0, 1))
    weights = jnp.broadcast_to(valid_BL, x_BLX.shape[:2])[..., None].astype(jnp.float32)
    return (x_BLX * weights).sum((0, 1)) / jnp.maximum(weights.sum(), 1.0)


def expert_products(x_XD: jax.Array, kernels_EDF: jax.Array, sizes_E: jax.Array) -> jax.Array:
    """Each row times the kernel of its expert, (X, F) in the dtype of `x_XD`; rows are in the order of the experts."""
    product = side_by_side if platform() == "tpu" else _mapped_together
    return product(x_XD, kernels_EDF.astype(x_XD.dtype), sizes_E).astype(x_XD.dtype)


def _mapped_together(x_XD: jax.Array, kernels_EDF: jax.Array, sizes_E: jax.Array) -> jax.Array:
    """`lax.ragged_dot`, of whose arguments `vmap` has to map all or none: each gets a 0 that depends on the others."""

    def total(numbers: jax.Array) -> jax.Array:
        return numbers.sum(dtype=sizes_E.dtype)

    nothing = 0 * (total(x_XD[:1] > 0) + total(kernels_EDF[:1] > 0) + total(sizes_E))
    own = nothing.astype(x_XD.dtype)
    return lax.ragged_dot(x_XD + own, kernels_EDF + own, sizes_E + nothing)


@jax.custom_vjp
def side_by_side(x_XD: jax.Array, kernels_EDF: jax.Array, sizes_E: jax.Array) -> jax.Array:
    """`lax.ragged_dot` whose `vmap` is one product with the experts of all models.

    TPUs have no product of several models that is ragged. It has no forward-mode derivative.
    """
    return _products(x_XD, kernels_EDF, sizes_E)


def _forward(x_XD, kernels_EDF, sizes_E):
    return _products(x_XD, kernels_EDF, sizes_E), (x_XD, kernels_EDF, sizes_E)


def _backward(kept, out_XF):
    x_XD, kernels_EDF, sizes_E = kept
    return _products(out_XF, jnp.swapaxes(kernels_EDF, 1, 2), sizes_E), _outer_products(x_XD, out_XF, sizes_E), None


side_by_side.defvjp(_forward, _backward)


def _over_models(product: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A product whose `vmap` is one, of the rows and experts of one model after another."""
    mapped = custom_vmap(product)

    @mapped.def_vmap
    def _(count: int, batched: Sequence[bool], *arrays: jax.Array):
        whole = [a if own else jnp.broadcast_to(a, (count, *a.shape)) for a, own in zip(arrays, batched, strict=True)]
        out = mapped(*(a.reshape(-1, *a.shape[2:]) for a in whole))
        return out.reshape(count, -1, *out.shape[1:]), True

    return mapped


@_over_models
def _products(x_XD: jax.Array, kernels_EDF: jax.Array, sizes_E: jax.Array) -> jax.Array:
    return lax.ragged_dot(x_XD, kernels_EDF, sizes_E)


@_over_models
def _outer_products(x_XD: jax.Array, y_XF: jax.Array, sizes_E: jax.Array) -> jax.Array:
    """The sum of xᵀy over the rows of each expert, (E, D, F)."""
    rows = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[])
    return lax.ragged_dot_general(x_XD, y_XF, sizes_E, rows)


def expert_rows(biases_EF: jax.Array, sizes_E: jax.Array, count: int) -> jax.Array:
    """The bias of the expert of each of `count` rows, (X, F)."""
    return jnp.repeat(biases_EF, sizes_E, axis=0, total_repeat_length=count)
