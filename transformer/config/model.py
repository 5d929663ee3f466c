"""The shape and the choices of a transformer."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from transformer.config.activations import GELU, Activation
from transformer.config.implementations import AttentionImplementation, Exact, Layers, Unrolled
from transformer.config.norms import LayerNorm, Norm
from transformer.config.positions import Learned, Position
from transformer.config.residuals import PreNorm, Residual
from transformer.config.variant import ConfigError, replace

SIZES = ("vocab_size", "max_length", "num_layers", "d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer; every swappable choice is a value."""

    vocab_size: int | None = None
    """Number of token types; none: as many as the tokenizer of the data has."""
    max_length: int = 64
    """Longest sequence the model is built for, in tokens."""
    num_layers: int = 4
    """Number of blocks, each an attention and a feed-forward sublayer."""
    d_model: int = 128
    """Width of the residual stream."""
    num_heads: int = 4
    """Query heads."""
    num_kv_heads: int | None = None
    """Key-value heads shared by groups of query heads; none: as many as query heads."""
    head_dim: int | None = None
    """Size of a head; none: d_model / num_heads."""
    d_ff: int | None = None
    """Width of the feed-forward sublayer; none: 4 d_model."""
    norm: Norm = LayerNorm()
    """Normalization method."""
    residual: Residual = PreNorm()
    """Where the norms sit around a sublayer."""
    activation: Activation = GELU()
    """Activation of the feed-forward sublayer."""
    position: Position = Learned()
    """Positional scheme."""
    attention: AttentionImplementation = Exact()
    """How attention is computed."""
    layers: Layers = Unrolled()
    """How the stack of blocks is run."""
    attention_scale: float | None = None
    """Multiplies q·k; none: 1/√head_dim."""
    attention_bias: bool = False
    """Biases of the query, key, value and output projections."""
    feed_forward_bias: bool = False
    """Biases of the feed-forward sublayer."""
    tie_embeddings: bool = True
    """Whether the output projection is the transposed token embedding."""
    dropout: float = 0.0
    """Share of features dropped after the embedding and after each sublayer while training."""
    initial_std: float = 0.02
    """Standard deviation of initial matrices; residual outputs take it over √(2 num_layers)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype of products and the residual stream; parameters, norms, softmax and loss are float32."""

    def __post_init__(self):
        for name in SIZES:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"model.{name}: {value} is not a positive number")
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                f"model.num_heads: {self.num_heads} heads do not divide d_model {self.d_model}; "
                f"the nearest that does is {_nearest_divisor(self.d_model, self.num_heads)}, or set head_dim"
            )
        if self.num_heads % self.kv_heads:
            raise ConfigError(
                f"model.num_kv_heads: {self.kv_heads} key-value heads do not divide {self.num_heads} query heads; "
                f"the nearest that does is {_nearest_divisor(self.num_heads, self.kv_heads)}"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout: {self.dropout} is not in [0, 1)")
        self.position.check(self.head_size)

    @property
    def kv_heads(self) -> int:
        """G: the number of key-value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def head_size(self) -> int:
        """K: the size of a head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def ff_width(self) -> int:
        """F: the width of the feed-forward sublayer."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def replace(self, **changes: Any) -> Self:
        """A copy with fields changed; variants as values or in their text form."""
        return replace(self, changes)


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
