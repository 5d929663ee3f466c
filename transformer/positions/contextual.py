"""Positional schemes whose distances depend on the tokens in between."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.parameters import Constant, FanIn, Normal, Parameter
from transformer.functional import biases
from transformer.functional.masks import Causal, OwnBeams, Padding
from transformer.positions.position import Position


@dataclass(frozen=True)
class Forgetting(Position):
    """Adds Σ log f over the tokens after the key up to the query, f = σ(w·x + b) per head (Lin Z. et al. 2025).

    This is the forgetting transformer (FoX, equation 5): ALiBi with a slope that depends on the data. In an
    encoder the sum runs over the tokens between the two, in either direction.
    """

    initial: float = 2.0
    """Initial value of b; 0 in the paper."""
    relative = True

    def layer_parameters(self, num_heads, head_dim, d_model, value_dim):
        return {
            "forget": Parameter((d_model, num_heads), FanIn()),
            "forget_bias": Parameter((num_heads,), Constant(self.initial)),
        }

    def key_features(self, x_BLD, params):
        return jax.nn.log_sigmoid(x_BLD.astype(jnp.float32) @ params["forget"] + params["forget_bias"])

    def feature_bias(self, features_BSH, queries, keys, in_slots):
        features = features_BSH if keys.valid is None else features_BSH * keys.valid[..., None].astype(jnp.float32)
        if not in_slots:
            sums_BSH = jnp.cumsum(features, 1)
            return biases.Cumulated(sums_BSH, sums_BSH)
        earlier_BSS = (Causal() & OwnBeams())(keys, keys)[:, 0]
        sums_BSH = _picked(earlier_BSS, features)
        same_BLS = queries.positions[:, :, None] == keys.positions[:, None, :]
        same_BLS &= (Padding() & OwnBeams())(queries, keys)[:, 0]
        return biases.Cumulated(_picked(same_BLS, sums_BSH), sums_BSH)


def _picked(which_BLS: jax.Array, features_BSH: jax.Array) -> jax.Array:
    """The sum of some features for each row, (B, L, H), with all their digits on devices that would round them."""
    return jnp.matmul(which_BLS.astype(jnp.float32), features_BSH, precision=jax.lax.Precision.HIGHEST)


@dataclass(frozen=True)
class Contextual(Position):
    """The distance of a key is a sum of gates σ(q·k) from it to the query (CoPE, Golovneva et al. 2024).

    q·e is added to the score, with a trained vector e for each whole distance up to `limit` and interpolation
    in between (equations 3 to 5). Both the gates and the added numbers are of scaled queries, where the paper's listing
    has unscaled ones and begins with vectors of zeros.
    """

    limit: int = 32
    """Largest distance; larger ones count as this."""
    enters_queries = True
    relative = True

    def __post_init__(self):
        check_positive(self, "limit")

    def layer_parameters(self, num_heads, head_dim, d_model, value_dim):
        return {"table": Parameter((self.limit + 1, head_dim), Normal(0.02), decay=False)}

    def score(self, q_BLHK, in_slots, params):
        own_BLHX = q_BLHK.astype(jnp.float32) @ params["table"].T
        return functools.partial(biases.add_contextual, own_BLHX, in_slots)
