"""What attention takes over from earlier layers."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from transformer.core.parameters import Constant, Parameter
from transformer.core.values import Variant


class Carry(Variant):
    """What attention takes over from earlier layers; the first layer has nothing to take."""

    takes: ClassVar[str | None] = None
    """The field of `transformer.modules.context.Carried` that it reads; None: nothing."""
    own_keys_values: ClassVar[bool] = True
    """Whether the layer makes keys and values of its own."""

    def parameters(self) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def scores(self, own: jax.Array, before: jax.Array) -> jax.Array:
        """The scores used, from those of this layer and of the previous one."""
        return own

    def values(self, own: jax.Array, other: jax.Array, params: dict[str, jax.Array]) -> jax.Array:
        """The values used, from those of this layer and of the first one, or of the table of tokens."""
        return own


@dataclass(frozen=True)
class NoCarry(Carry):
    """Takes over nothing."""

    name = "none"


@dataclass(frozen=True)
class ScoreResidual(Carry):
    """Adds the scores of the previous layer to its own (RealFormer, He R. et al. 2020, equation 5)."""

    name = "scores"
    takes = "scores"

    def scores(self, own, before):
        return own + before


@dataclass(frozen=True)
class ValueResidual(Carry):
    """λ₁ V + λ₂ (V of the first layer), both λ trained from ½ (ResFormer, Zhou Z. et al. 2024, equation 4)."""

    name = "values"
    takes = "values"

    def parameters(self):
        return {"own": Parameter((), Constant(0.5)), "first": Parameter((), Constant(0.5))}

    def values(self, own, other, params):
        return _mixed(own, other, params["own"], params["first"])


@dataclass(frozen=True)
class ValueEmbeddings(Carry):
    """λ₁ V + λ₂ E with E from a table of the tokens, one for all layers, both λ trained from ½.

    (github.com/KellerJordan/modded-nanogpt, 2024, after ResFormer, Zhou Z. et al. 2024.) In language models only.
    """

    name = "value_embeddings"
    takes = "token_values"

    def parameters(self):
        return {"own": Parameter((), Constant(0.5)), "token": Parameter((), Constant(0.5))}

    def values(self, own, other, params):
        return _mixed(own, other, params["own"], params["token"])


def _mixed(own: jax.Array, other: jax.Array, own_share: jax.Array, other_share: jax.Array) -> jax.Array:
    """own_share · own + other_share · other, in float32 and back."""
    mixed = own_share * own.astype(jnp.float32) + other_share * other.astype(jnp.float32)
    return mixed.astype(own.dtype)


@dataclass(frozen=True)
class SharedKeyValues(Carry):
    """Reuses the keys and values of the previous layer (cross-layer attention, Brandon et al. 2024).

    With `pattern(carry=[none, keys_values])` pairs of layers share theirs, which halves the cache.
    """

    name = "keys_values"
    takes = "keys_values"
    own_keys_values = False
