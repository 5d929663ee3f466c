"""A feed-forward sublayer that also looks at the latest tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at, fused
from transformer.core.parameters import Parameter
from transformer.feed_forwards.feed_forward import FeedForward, FeedForwardLayer
from transformer.functional.cache import Inputs
from transformer.mixers.local import canon_kernel, convolve_latest

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class CanonFeedForward(FeedForward):
    """`dense` with Canon layers, x + a causal convolution of x: of its input (C) and of each projection (D).

    (Allen-Zhu 2025, Physics of Language Models 4.1.) Those at A and B are parts of attention, `canon_a` and `canon_b`.
    A decoder remembers what was convolved.
    """

    name = "canon"
    before: int | None = 4
    """Tokens spanned by the convolution of the input; None: there is none."""
    inside: int | None = 4
    """Tokens spanned by that of the projections before the activation; None: there is none."""

    def __post_init__(self):
        if self.before is self.inside is None:
            raise ConfigError("canon.before: without a convolution before or inside it is dense; use dense")
        check_positive(self, *(name for name in ("before", "inside") if getattr(self, name) is not None))

    def span(self, model):
        return max(self.before or 1, self.inside or 1)

    def kernels(self, model: "ModelConfig") -> dict[str, Parameter]:
        """The kernels of its convolutions (W, X), by name."""
        F, branches = self.width(model), range(self.activation.branches)
        before = {} if self.before is None else {"before": canon_kernel(self.before, model.d_model)}
        inside = {} if self.inside is None else {f"inside_{i}": canon_kernel(self.inside, F) for i in branches}
        return before | inside

    def memory(self, model, batch_size, slots, dtype):
        kernels = self.kernels(model).items()
        return Inputs({name: jnp.zeros((batch_size, slots, kernel.shape[1]), dtype) for name, kernel in kernels})

    def build(self, model, *, key):
        return CanonLayer(self, model, key=key)


class CanonLayer(FeedForwardLayer):
    """`FeedForwardLayer` with convolutions of its input and of its projections."""

    def __init__(self, feed_forward: CanonFeedForward, model: "ModelConfig", *, key: jax.Array):
        super().__init__(feed_forward, model, key=key)
        self.kernels = Parameters(feed_forward.kernels(model), key=at(key, "kernels"))

    def project(self, x_BLD, context):
        assert context is not None
        kernels, kept = self.kernels(), {}

        def canon(name: str, x_BLX: jax.Array) -> jax.Array:
            if name not in kernels:
                return x_BLX
            past = None if context.writing is None else context.writing.memory.inputs_BSX[name]
            mixed_BLX, kept[name] = convolve_latest(x_BLX, kernels[name], past, context)
            return x_BLX + mixed_BLX

        projected = fused(canon("before", x_BLD), self.branches)
        projected = [canon(f"inside_{i}", one) for i, one in enumerate(projected)]
        return projected, None if context.writing is None else Inputs(kept)
