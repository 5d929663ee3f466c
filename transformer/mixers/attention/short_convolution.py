"""A part of attention that mixes projections of neighbouring tokens."""

from dataclasses import dataclass

from transformer.core.parameters import FirstRow, Parameter
from transformer.core.values import ConfigError, check_positive
from transformer.functional.convolution import convolve, convolve_slots
from transformer.mixers.attention.base import Part


@dataclass(frozen=True)
class ShortConvolution(Part):
    """A causal convolution of queries, keys and values, initially the identity (Primer, So et al. 2021)."""

    name = "short_convolution"
    width: int = 3
    """Tokens spanned."""
    crosses = False

    def __post_init__(self):
        check_positive(self, "width")

    def check(self, attention, model):
        if attention.sharing is not None and not attention.sharing.own_keys_values:
            raise ConfigError(f"mixer.sharing: layers without keys of their own keep nothing for {self}")

    def parameters(self, attention, model, roles):
        width = sum(attention.shape(model).widths.values())
        return {"kernel": Parameter((self.width, width), FirstRow(), decay=False)}

    def span(self):
        return self.width

    def convolve(self, projected_BLX, context, read, params):
        kernel = params["kernel"]
        if context.writing is None:
            return convolve(projected_BLX, kernel, read), None
        seen, kept = context.writing.append(context.writing.memory.projected_BSX, projected_BLX, axis=1)
        return convolve_slots(seen, kernel, context.tokens, context.keys), kept
