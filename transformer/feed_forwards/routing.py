"""Which experts a token goes to, and the product of tokens with the experts they go to."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Routes(NamedTuple):
    """X pairs of a token and an expert, in the order of the experts."""

    tokens_X: jax.Array
    """Number of the token among all B · L, int32."""
    weights_X: jax.Array
    """Factor on the expert's output, float32."""
    sizes_E: jax.Array
    """Number of pairs of each expert, int32."""


def token_choice(logits_BLE: jax.Array, top: int, bias_E: jax.Array | None = None) -> Routes:
    """Routes every token to its `top` likeliest experts, weighted by softmax; no token is dropped.

    The bias is added to the logits for the choice, but not for the weights.
    """
    logits_TE = logits_BLE.reshape(-1, logits_BLE.shape[-1])
    experts_TX = _chosen(logits_TE, top, bias_E)
    chosen = jnp.take_along_axis(logits_TE, experts_TX, -1)
    # A softmax over the chosen experts or, with one, over all experts, so that the router has a gradient.
    weights_TX = jnp.exp(chosen - jax.nn.logsumexp(logits_TE if top == 1 else chosen, -1, keepdims=True))
    experts_X = experts_TX.reshape(-1)
    order = jnp.argsort(experts_X, stable=True)
    sizes_E = jnp.bincount(experts_X, length=logits_TE.shape[-1]).astype(jnp.int32)
    return Routes((order // top).astype(jnp.int32), weights_TX.reshape(-1)[order], sizes_E)


def expert_choice(logits_BLE: jax.Array, share: float, valid_BL: jax.Array | None) -> Routes:
    """Routes to every expert its likeliest `share` · n / E (rounded up) of the n real tokens of each sequence."""
    B, L, E = logits_BLE.shape
    probabilities_BEL = jnp.moveaxis(jax.nn.softmax(logits_BLE), -1, 1)
    valid_BL = jnp.ones((B, L), jnp.bool) if valid_BL is None else jnp.broadcast_to(valid_BL, (B, L))
    capacities = [min(n, math.ceil(share * n / E)) for n in range(L + 1)]  # rounded once, with padding and without
    likeliest_BEX, places_BEX = lax.top_k(jnp.where(valid_BL[:, None], probabilities_BEL, -1.0), capacities[L])
    allowed_B = jnp.asarray(capacities, jnp.int32)[valid_BL.sum(1)]
    taken_BEX = jnp.arange(capacities[L]) < allowed_B[:, None, None]
    tokens_EBX = jnp.swapaxes(places_BEX + jnp.arange(B)[:, None, None] * L, 0, 1)
    weights_EBX = jnp.swapaxes(jnp.where(taken_BEX, likeliest_BEX, 0.0), 0, 1)
    # Always B · most; computed from an array because `ragged_dot` under vmap needs batched group sizes.
    sizes_E = (places_BEX >= 0).sum((0, 2), dtype=jnp.int32)
    return Routes(tokens_EBX.reshape(-1).astype(jnp.int32), weights_EBX.reshape(-1), sizes_E)


def imbalance(
    logits_BLE: jax.Array, top: int, valid_BL: jax.Array | None, bias_E: jax.Array | None = None
) -> jax.Array:
    """E Σ fₑ Pₑ over the real tokens, 1 where experts are equally loaded (Fedus et al. 2021, equation 4)."""
    shares_E = _shares(logits_BLE, top, valid_BL, bias_E)
    return len(shares_E) * (shares_E * _mean(jax.nn.softmax(logits_BLE), valid_BL)).sum()


def excess(logits_BLE: jax.Array, top: int, valid_BL: jax.Array | None, bias_E: jax.Array) -> jax.Array:
    """0, whose gradient with respect to the bias of an expert is the sign of its load minus the mean load."""
    sign_E = jnp.sign(_shares(logits_BLE, top, valid_BL, bias_E) - 1 / len(bias_E))
    return ((bias_E - lax.stop_gradient(bias_E)) * lax.stop_gradient(sign_E)).sum()


def _chosen(logits: jax.Array, top: int, bias_E: jax.Array | None) -> jax.Array:
    """The experts (…, top) of each token."""
    return lax.top_k(logits if bias_E is None else logits + bias_E, top)[1]


def _shares(logits_BLE: jax.Array, top: int, valid_BL: jax.Array | None, bias_E: jax.Array | None) -> jax.Array:
    """The share of each expert in all choices of the real tokens, (E,)."""
    experts_BLX = _chosen(logits_BLE, top, bias_E)
    return _mean(jax.nn.one_hot(experts_BLX, logits_BLE.shape[-1]).sum(-2) / top, valid_BL)


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
    return lax.ragged_dot(x_XD, kernels_EDF.astype(x_XD.dtype), sizes_E).astype(x_XD.dtype)
