"""What attention takes over from earlier layers."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import dense, look_up
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ZEROS, Constant, OwnParams, Parameter
from transformer.mixers.attention.base import Sharing
from transformer.mixers.mixer import OF_TOKENS, Context


@dataclass(frozen=True)
class ScoreResidual(Sharing):
    """Adds the scores of the previous layer to its own (RealFormer, He R. et al. 2020, equation 5)."""

    name = "scores"
    takes = "scores"

    def scores(self, own, before):
        return own + before


@dataclass(frozen=True)
class ValueResidual(Sharing):
    """λ₁ V + λ₂ (V of the first layer), both λ trained from ½ (ResFormer, Zhou Z. et al. 2024, equation 4)."""

    name = "values"
    takes = "values"

    def parameters(self, shape, model):
        return {"own": Parameter((), Constant(0.5)), "first": Parameter((), Constant(0.5))}

    def values(self, own, other, x_BSD, params):
        return _mixed(own, other, params["own"], params["first"])


@dataclass(frozen=True)
class ValueEmbeddings(Sharing):
    """λ₁ V + λ₂ E with E from a table of the tokens, one for all layers, both λ trained from ½.

    (github.com/KellerJordan/modded-nanogpt, 2024, after ResFormer, Zhou Z. et al. 2024.) In language models only.
    """

    name = "value_embeddings"
    takes = "token_values"

    def parameters(self, shape, model):
        return {"own": Parameter((), Constant(0.5)), "token": Parameter((), Constant(0.5))}

    def values(self, own, other, x_BSD, params):
        return _mixed(own, other, params["own"], params["token"])


@dataclass(frozen=True)
class GatedValueEmbeddings(Sharing):
    """V + 2 σ(xW) E, with E from a table of the tokens that each layer owns, and one gate a head, at first ½.

    (github.com/KellerJordan/modded-nanogpt, 2025; nanochat, Karpathy 2025, with every second layer.) In language models
    only.
    """

    name = "gated_value_embeddings"
    features: int = 12
    """Features of x, from the first, that W reads."""
    takes = "token_ids"

    def __post_init__(self):
        check_positive(self, "features")

    def check(self, model):
        if self.features > model.d_model:
            raise ConfigError(f"{self.name}.features: {self.features} are more than d_model {model.d_model}")

    def parameters(self, shape, model):
        G, V = shape.num_kv_heads, shape.value_size
        # Without decay, which is what rules for the matrices of layers go by: rows of a table are no such matrix.
        table = Parameter((model.vocab_size or 0, G * V), model.embedding.initializer, decay=False)
        return {"table": table, "gate": Parameter((self.features, G), ZEROS, decay=False)}

    def values(self, own, other, x_BSD, params):
        gate_BSG = 2 * jax.nn.sigmoid(dense(x_BSD[..., : self.features], params["gate"], jnp.float32))
        rows_BSGV = look_up(params["table"], other).reshape(own.shape).astype(jnp.float32)
        return (own.astype(jnp.float32) + gate_BSG[..., None] * rows_BSGV).astype(own.dtype)


def _mixed(own: jax.Array, other: jax.Array, own_share: jax.Array, other_share: jax.Array) -> jax.Array:
    """own_share · own + other_share · other, in float32 and back."""
    mixed = own_share * own.astype(jnp.float32) + other_share * other.astype(jnp.float32)
    return mixed.astype(own.dtype)


@dataclass(frozen=True)
class SharedKeyValues(Sharing):
    """Reuses the keys and values of the previous layer (cross-layer attention, Brandon et al. 2024).

    In every second layer of a pattern it halves the cache.
    """

    name = "keys_values"
    takes = "keys_values"
    own_keys_values = False


def shared_values(
    sharing: Sharing | None, v_BSGK: jax.Array, x_BSD: jax.Array, context: Context, params: OwnParams
) -> tuple[jax.Array, jax.Array]:
    """(values of the first layer, values that this layer uses).

    Raises:
      ConfigError: the values of a table of tokens are asked for, and there are no tokens.
    """
    first = v_BSGK
    if context.shared.values is not None:
        first = jnp.where(context.first, v_BSGK, context.shared.values)
    if sharing is None:
        return first, v_BSGK
    other = getattr(context.shared, sharing.takes) if sharing.takes in OF_TOKENS else first
    if other is None:
        raise ConfigError(f"mixer.sharing: {sharing} has no tokens here; use values, or a language model")
    return first, sharing.values(v_BSGK, other, x_BSD, params)
