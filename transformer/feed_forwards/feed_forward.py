"""The position-wise feed-forward sublayer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from transformer.activations.activation import GELU, Activation
from transformer.core.arrays import dropout
from transformer.core.errors import ConfigError
from transformer.core.modules import Dense, at, fused
from transformer.core.values import Variant
from transformer.functional.cache import Memory
from transformer.mixers.mixer import Aux, Context
from transformer.norms.norm import Norm, norm_layer
from transformer.residuals.residual import Residual

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class FeedForward(Variant):
    """norm(activation(x W₁, x W₂, …)) · W_out, one network for all tokens (Vaswani et al. 2017, section 3.3)."""

    name = "dense"
    sublayer: ClassVar[str] = "feed_forward"
    mixes_tokens: ClassVar[bool] = False
    """Whether the output of a token depends on other tokens, which a causal model does not allow."""
    routed: ClassVar[bool] = False
    """Whether each token goes through some of several networks."""
    d_ff: int | None = None
    """F: width of the hidden layer; None: 4 d_model."""
    activation: Activation = GELU()
    """Activation, which takes one projection of the input or several."""
    bias: bool = False
    """Whether its projections have biases."""
    dropout: float = 0.0
    """Share of features dropped after the activation while training."""
    inner_norm: Norm | None = None
    """Norm before the output projection (NormFormer, Shleifer et al. 2021); None where the residual asks for none."""
    residual: Residual | None = None
    """How this sublayer is connected to the stream; None: as the model's others."""

    @property
    def has_linear_layers(self) -> bool:
        """Whether every token goes through some linear layer, which `model.weights` is of."""
        return True

    def check(self, model: "ModelConfig") -> None:
        """Raise `ConfigError` where it does not fit the model, as one layer sees it."""
        if callable(self):
            raise ConfigError(f"feed_forward: {self} defines __call__, which nothing calls; define build(model, key=…)")
        if self.d_ff is not None and self.d_ff < 1:
            raise ConfigError(f"feed_forward.d_ff: {self.d_ff} is not a positive number")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"feed_forward.dropout: {self.dropout} is not in [0, 1)")
        if model.causal and self.mixes_tokens:
            raise ConfigError(
                f"model.feed_forward: in {self} the experts of a token depend on later ones, and the model is causal; "
                "use top_k, or an encoder"
            )
        if self.residual is not None and not self.residual.shares_stream(model.residual):
            raise ConfigError(
                f"feed_forward.residual: {self.residual} and {model.residual} cannot share one stream; use none"
            )
        if (inner := self.inner(model)) is not None:
            inner.check(self.width(model))
            if inner.mixes_tokens:
                raise ConfigError(f"feed_forward.inner_norm: {inner} is a norm of whole sequences; use layernorm")

    def width(self, model: "ModelConfig") -> int:
        """F: the width of the hidden layer."""
        return 4 * model.d_model if self.d_ff is None else self.d_ff

    def connection(self, model: "ModelConfig") -> Residual:
        """How it is connected to the stream."""
        return model.residual if self.residual is None else self.residual

    def inner(self, model: "ModelConfig") -> Norm | None:
        """The norm before the output projection, which some residual connections require."""
        return model.inner_norm(self.inner_norm, self.connection(model))

    def gains(self, model: "ModelConfig") -> tuple[float, float]:
        """The factors on initial values of the input projections and of the output projection."""
        connection = self.connection(model)
        return model.inner_gain(connection), model.output_gain(connection)

    def span(self, model: "ModelConfig") -> int:
        """Number of latest tokens that it looks at, as `Mixer.span`; 1: the token itself."""
        return 1

    def memory(self, model: "ModelConfig", batch_size: int, slots: int, dtype: Any) -> Memory | None:
        """The empty memory of one sublayer of a decoder; None: nothing is remembered."""
        return None

    def build(self, model: "ModelConfig", *, key: jax.Array) -> nnx.Module:
        """The module of one layer."""
        return FeedForwardLayer(self, model, key=key)


class FeedForwardLayer(nnx.Module):
    """One network, with as many branches as the activation takes."""

    def __init__(self, feed_forward: FeedForward, model: "ModelConfig", *, key: jax.Array):
        self.activation, self.dropout = feed_forward.activation, feed_forward.dropout
        D, F, (inner_gain, output_gain) = model.d_model, feed_forward.width(model), feed_forward.gains(model)
        how = {"initializer": model.initializer, "form": model.weights, "bias": feed_forward.bias}
        self.branches = nnx.List(
            Dense(D, F, **how, gain=inner_gain, key=at(key, "branches", i)) for i in range(self.activation.branches)
        )
        self.inner_norm = norm_layer(feed_forward.inner(model), F, "inner_norm", key=key)
        self.out = Dense(F, D, **how, gain=output_gain, key=at(key, "out"))

    def __call__(
        self, x_BLD: jax.Array, *, context: Context | None = None, key: jax.Array | None = None
    ) -> tuple[jax.Array, Aux]:
        """The output (B, L, D), and what is remembered; a key turns dropout on."""
        (first_BLF, *others), memory = self.project(x_BLD, context)
        others = [checkpoint_name(other, f"pre_{i}") for i, other in enumerate(others, 1)] if others else []
        hidden_BLF = self.activation(checkpoint_name(first_BLF, "pre"), *others)
        hidden_BLF = hidden_BLF if self.inner_norm is None else self.inner_norm(hidden_BLF)
        hidden_BLF = checkpoint_name(hidden_BLF, "post")
        if key is not None:
            hidden_BLF = dropout(hidden_BLF, self.dropout, key)
        return self.out(hidden_BLF), Aux(memory)

    def project(self, x_BLD: jax.Array, context: Context | None) -> tuple[Sequence[jax.Array], Memory | None]:
        """(the projections of the input (B, L, F), what a decoder remembers with these tokens)."""
        return fused(x_BLD, self.branches), None
