"""Parts of attention: further ideas, each at the stages whose method it defines."""

from typing import TYPE_CHECKING, ClassVar

import jax

from transformer.core.errors import ConfigError, similar
from transformer.core.parameters import OwnParams, Parameter
from transformer.core.values import Variant
from transformer.functional.cache import KeyValue
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context

if TYPE_CHECKING:
    from transformer.mixers.attention.attention import Attention
    from transformer.models.config import ModelConfig


class Part(Variant):
    """A further idea in attention, which acts at the stages whose method it defines; others do not know of it."""

    crosses: ClassVar[bool] = True
    """Whether it acts in attention to a source, too, as far as its stages are there: project, split and mix."""
    keys_have_positions: ClassVar[bool] = True
    """Whether all keys have them; False where it adds some without, which rotated queries then meet."""

    def check(self, attention: "Attention", model: "ModelConfig") -> None:
        """Raise `ConfigError` where it does not fit."""

    def parameters(self, attention: "Attention", model: "ModelConfig") -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def span(self) -> int:
        """Number of latest tokens that it needs while decoding."""
        return 1

    def enter(
        self, x_BLD: jax.Array, context: Context, read: Tokens, params: OwnParams
    ) -> tuple[jax.Array, jax.Array | None]:
        """(what is used in place of the input, what the memory keeps of it); `read` as in `convolve`."""
        return x_BLD, None

    def project(self, role: str, projected_BLX: jax.Array, x_BLD: jax.Array, params: OwnParams) -> jax.Array:
        """What is used in place of a projection of the input."""
        return projected_BLX

    def convolve(
        self, projected_BLX: jax.Array, context: Context, read: Tokens, params: OwnParams
    ) -> tuple[jax.Array, jax.Array | None]:
        """(what is used in place of all projections, concatenated; what the memory keeps of them).

        `read` are the tokens of the projections: those of the context, behind those of an earlier segment. What the
        memory keeps is in `KeyValue.convolved` by the name of the part.
        """
        return projected_BLX, None

    def split(self, role: str, x_BLHK: jax.Array, params: OwnParams) -> jax.Array:
        """What is used in place of the queries, keys or values of heads, before positions enter them."""
        return x_BLHK

    def extend(self, keys_values: KeyValue, keys: Tokens, params: OwnParams) -> tuple[KeyValue, Tokens]:
        """What is attended to in place of these keys and values, and its tokens.

        Keys at the position `NOWHERE` are seen by every query, without a bias.
        """
        return keys_values, keys

    def mix(self, out_BLHV: jax.Array, own_BLHV: jax.Array | None, x_BLD: jax.Array, params: OwnParams) -> jax.Array:
        """What is used in place of the outputs of heads.

        `own_BLHV` is what the heads would put out if each token attended to itself alone; None in attention to a
        source, and where keys and values are those of another layer.
        """
        return out_BLHV


def acts(part: Part, stage: str) -> bool:
    """Whether a part defines a stage."""
    return getattr(type(part), stage) is not getattr(Part, stage)


def acts_in_cross_attention(part: Part) -> bool:
    """Whether a part acts in attention to a source, which has neither the input nor the keys of self-attention."""
    return part.crosses and not any(acts(part, stage) for stage in ("enter", "convolve", "extend"))


def check_acts(part: Part) -> None:
    """Raise `ConfigError` where a part defines no stage, such as one whose method is misspelled."""
    stages = ("enter", "project", "convolve", "split", "extend", "mix")
    if not any(acts(part, stage) for stage in stages):
        own = [name for name in vars(type(part)) if not name.startswith("_")]
        meant = next((f"; did you mean {found} by {name}?" for name in own if (found := similar(name, stages))), "")
        raise ConfigError(f"mixer.parts: {part} acts nowhere: it defines none of {', '.join(stages)}{meant}")
