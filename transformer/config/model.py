"""The shape and the choices of a transformer."""

import copy
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp

from transformer.config.activations import GELU, Activation
from transformer.config.attention import (
    Concatenate,
    InverseRootScale,
    Merge,
    Projection,
    Scale,
    SeparateProjections,
)
from transformer.config.blocks import BlockLayout, Sequential
from transformer.config.carries import Carry, NoCarry
from transformer.config.feed_forwards import DenseFeedForward, FeedForwardKind
from transformer.config.heads import Heads, HeadSizes, PlainHeads
from transformer.config.implementations import AttentionImplementation, Exact, Layers, Unrolled
from transformer.config.norms import LayerNorm, NoNorm, Norm
from transformer.config.parameters import Initializer, Normal
from transformer.config.patterns import Pattern
from transformer.config.pooling import MeanPooling, Pooling
from transformer.config.positions import Learned, Position
from transformer.config.reaches import FullReach, Reach
from transformer.config.residuals import PreNorm, Residual
from transformer.config.variant import ConfigError, replace
from transformer.config.weightings import PlainScore, Score, SoftmaxWeighting, Weighting


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A transformer of tokens; every swappable choice is a value."""

    sizes: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "max_length",
        "num_layers",
        "d_model",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "d_ff",
        "embedding_dim",
        "distinct_layers",
    )
    """Fields that are positive numbers, or none."""
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
    causal: bool = True
    """Whether a token sees only itself and those before it: a decoder; otherwise an encoder."""
    norm: Norm = LayerNorm()
    """Normalization method."""
    residual: Residual = PreNorm()
    """How sublayers are connected to the stream, and where the norms sit."""
    feed_forward_residual: Residual | None = None
    """The same of feed-forward sublayers; none: as residual."""
    block: BlockLayout = Sequential()
    """Sublayers of a block and their order."""
    activation: Activation = GELU()
    """Activation of the feed-forward sublayer."""
    feed_forward: FeedForwardKind = DenseFeedForward()
    """One feed-forward network, or several experts."""
    position: Position = Learned()
    """Positional scheme."""
    attention: AttentionImplementation = Exact()
    """How attention is computed."""
    layers: Layers = Unrolled()
    """How the stack of blocks is run."""
    pattern: Pattern = Pattern()
    """What changes from layer to layer."""
    distinct_layers: int | None = None
    """Blocks with parameters of their own, gone through again and again (Lan et al. 2020, ALBERT); none: all."""
    projection: Projection = SeparateProjections()
    """Which linear layers make queries, keys and values."""
    heads: Heads = PlainHeads()
    """What a head is."""
    scale: Scale = InverseRootScale()
    """The factor on q·k."""
    score: Score = PlainScore()
    """A function of every scaled score by itself."""
    weighting: Weighting = SoftmaxWeighting()
    """How scores become weights."""
    scale_bias: bool = False
    """Whether the factor multiplies the bias of the position too: scale · (q·k + bias)."""
    merge: Merge = Concatenate()
    """How the outputs of the heads become one vector."""
    reach: Reach = FullReach()
    """How far self-attention looks."""
    carry: Carry = NoCarry()
    """What attention takes over from the layers before."""
    qk_norm: Norm = NoNorm()
    """Norm of the queries and keys of each head (Henry et al. 2020; Dehghani et al. 2023)."""
    embedding_norm: Norm = NoNorm()
    """Norm of the embedded tokens (BLOOM, 2022)."""
    attention_inner_norm: Norm = NoNorm()
    """Norm before the output projection of attention (Wang H. et al. 2022b, Sub-LN)."""
    feed_forward_inner_norm: Norm = NoNorm()
    """Norm before the output projection of the feed-forward sublayer (the same; NormFormer)."""
    final_norm: bool | None = None
    """Whether the stream is normalized after the last layer; none: as residual says."""
    attention_gate: bool = False
    """Multiply the heads' outputs by σ(xW) (Qiu et al. 2025)."""
    attention_bias: tuple[Literal["query", "key", "value", "out"], ...] = ()
    """Which projections of attention have a bias."""
    feed_forward_bias: bool = False
    """Biases of the feed-forward sublayer."""
    tie_embeddings: bool = True
    """Whether the output projection is the transposed token embedding."""
    embedding_dim: int | None = None
    """E: width of the tables of tokens, which a matrix then widens to d_model (Lan et al. 2020); none: d_model."""
    unit_embeddings: bool = False
    """Rows of these tables have one length, a trained number (FixNorm, Nguyen and Chiang 2018)."""
    logit_scale: float = 1.0
    """Factor on the states that the output projection reads, and so on logits."""
    scale_embeddings: bool = False
    """Multiply token embeddings by √d_model (Vaswani et al. 2017, section 3.4)."""
    dropout: float = 0.0
    """Share of features dropped after the embedding and after each sublayer while training."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped."""
    feed_forward_dropout: float = 0.0
    """Share of features dropped after the activation."""
    stochastic_depth: float = 0.0
    """Share of sequences that skip a sublayer of the last layer; rises linearly from the first (Huang et al. 2016)."""
    initializer: Initializer = Normal(0.02)
    """Initial values of matrices."""
    embedding_initializer: Initializer = Normal(0.02)
    """Initial values of token embeddings."""
    scale_residual_init: bool = True
    """Initial values of residual outputs over √branches, two in a block (GPT-2, Radford et al. 2019)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype of products and the residual stream; parameters, norms, softmax and loss are float32."""

    def __post_init__(self):
        for name in self.sizes:
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
        for name in ("dropout", "attention_dropout", "feed_forward_dropout", "stochastic_depth"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"model.{name}: {getattr(self, name)} is not in [0, 1)")
        self._check_pattern()
        for layer in range(self.pattern.period):
            self.layer_config(layer)._check_layer()
        if self.feed_forward_residual is not None and self.feed_forward_residual.streams != self.residual.streams:
            raise ConfigError(
                f"model.feed_forward_residual: {self.feed_forward_residual} and {self.residual} keep other streams"
            )

    def _check_pattern(self) -> None:
        period, distinct = self.pattern.period, self.num_distinct_layers
        if self.num_layers % period or distinct % period or distinct > self.num_layers:
            raise ConfigError(
                f"model.pattern: {self.num_layers} layers, {distinct} of them distinct, are not whole turns of "
                f"{period} layers"
            )
        for name in self.pattern.changes(0):
            own = name in ("position", "residual")  # these also act outside of the layers
            if not own and getattr(self, name) != getattr(ModelConfig, name):
                raise ConfigError(
                    f"model.pattern: it says {name} of every layer, so {getattr(self, name)} has no place"
                )
        layers = [self.layer_config(layer) for layer in range(period)]
        for layer in layers:
            if layer.residual.streams != self.residual.streams:
                raise ConfigError(f"model.pattern: {layer.residual} and {self.residual} keep other streams")
            if layer.position != self.position and not layer.position.enters_layers(self):
                raise ConfigError(f"model.pattern: {layer.position} does not enter in each layer by itself; use rope")
        if self.carries and not (layers[0].carry.own_memory and layers[0].block.attends):
            raise ConfigError(
                f"model.carry: the first layer, of {layers[0].carry} and {layers[0].block}, has nothing to hand on; "
                "use pattern(carry=[none, keys_values])"
            )
        if self.position.biased and not any(layer.block.attends for layer in layers):
            raise ConfigError(f"model.position: {self.position} is a bias of scores, and {self.block} has no attention")

    def layer_config(self, layer: int) -> "ModelConfig":
        """The config as one layer sees it; some of its choices can only be in a pattern."""
        view = copy.copy(self)
        for name, value in self.pattern.changes(layer).items():
            object.__setattr__(view, name, value)
        return view

    def _check_layer(self) -> None:
        self._check_norms()
        self._check_attention()
        self._check_heads()
        self._check_sublayers()

    def _check_norms(self) -> None:
        widths = {
            "norm": self.d_model,
            "embedding_norm": self.d_model,
            "qk_norm": self.heads.key_size(self.head_sizes),
            "attention_inner_norm": self.merge.width(self.num_heads, self.value_size),
            "feed_forward_inner_norm": self.ff_width,
        }
        for name, width in widths.items():
            norm: Norm = getattr(self, name)
            norm.check(width)
            if norm.mixes_tokens and self.causal:
                raise ConfigError(
                    f"model.{name}: the statistics of {norm} are those of all tokens, later ones too, and the model is "
                    "causal; use layernorm, or an encoder"
                )
            if norm.mixes_tokens and name not in ("norm", "embedding_norm"):
                raise ConfigError(f"model.{name}: {norm} is a norm of whole sequences; use layernorm")

    def _check_attention(self) -> None:
        if self.attention_dropout and not self.attention.forms_weights:
            raise ConfigError(f"model.attention_dropout: {self.attention} never forms the weights; use exact")
        if self.carry.takes == "scores" and not self.attention.forms_weights:
            raise ConfigError(f"model.carry: {self.attention} never forms the scores; use exact")
        if not (self.weighting.online or self.attention.forms_weights):
            raise ConfigError(f"model.weighting: {self.attention} computes a softmax, not {self.weighting}; use exact")
        if not self.weighting.biased and self.position.biased:
            raise ConfigError(f"model.weighting: {self.weighting} takes no bias, and {self.position} is one; use rope")
        if not self.weighting.biased and self.score != PlainScore():
            raise ConfigError(f"model.score: the products of {self.weighting} are no scores of {self.score}; use plain")
        if not self.weighting.scaled and self.scale != InverseRootScale():
            raise ConfigError(f"model.scale: in {self.weighting} the factor {self.scale} cancels; use inverse_root")
        if not self.reach.mixes_tokens:
            return
        if self.causal:
            raise ConfigError(
                f"model.reach: what {self.reach} attends to is mixed of all tokens, and the model is causal; use full, "
                "or an encoder"
            )
        if self.position.biased or self.weighting.relative:
            raise ConfigError(f"model.reach: the mixtures of {self.reach} have no position; use rope and softmax")

    def _check_heads(self) -> None:
        heads, sizes = self.heads, self.head_sizes
        heads.check(sizes)
        self.projection.check(self.d_model, self.num_heads, self.kv_heads, self.head_size, self.value_size)
        self.merge.check(self.d_model, self.num_heads, self.value_size)
        if heads.longest is not None and heads.longest < self.max_length:
            raise ConfigError(f"model.heads: {heads} has no scores for {self.max_length} tokens (max_length)")
        if not heads.shares_keys and self.num_kv_heads not in (None, self.num_heads):
            raise ConfigError(f"model.num_kv_heads: in {heads} all heads share one memory, not {self.num_kv_heads}")
        whole = heads.placed_size(sizes) == heads.key_size(sizes)
        if not whole and self.qk_norm != NoNorm():
            raise ConfigError(f"model.qk_norm: queries and keys of {heads} are not projections alone; use none")
        if not whole and self.projection != SeparateProjections():
            raise ConfigError(f"model.projection: {heads} needs layers of other widths than {self.projection}")
        if heads.compares:
            self.position.check(heads.placed_size(sizes))
        elif self.position.enters_queries or not self.weighting.biased:
            choice = self.position if self.position.enters_queries else self.weighting
            raise ConfigError(f"model.heads: {choice} enters in products of queries and keys, and {heads} has none")

    def _check_sublayers(self) -> None:
        if self.feed_forward.num_experts and (self.feed_forward_bias or self.feed_forward_inner_norm != NoNorm()):
            raise ConfigError(f"model.feed_forward: {self.feed_forward} has no biases and no inner norm; use dense")
        if self.causal and self.feed_forward.mixes_tokens:
            raise ConfigError(
                f"model.feed_forward: in {self.feed_forward} the way of a token depends on later ones, and the model "
                "is causal; use top_k, or an encoder"
            )
        if self.causal and self.block.mixes_tokens:
            raise ConfigError(
                f"model.block: {self.block} mixes each token with all others, and the model is causal; use sequential, "
                "or an encoder"
            )

    def residual_of(self, kind: str) -> Residual:
        """The residual connection of a kind of sublayer."""
        own = {"feed_forward": self.feed_forward_residual}.get(kind)
        return self.residual if own is None else own

    @property
    def kv_heads(self) -> int:
        """G: the number of key-value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def head_size(self) -> int:
        """K: the size of a head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def value_size(self) -> int:
        """Size of a head's values."""
        return self.merge.value_dim(self.d_model, self.head_size)

    @property
    def head_sizes(self) -> HeadSizes:
        """H, G, K and the size of a head's output."""
        return HeadSizes(self.num_heads, self.kv_heads, self.head_size, self.value_size)

    @property
    def carries(self) -> tuple[str, ...]:
        """What layers take over from those before."""
        takes = [self.layer_config(layer).carry.takes for layer in range(self.pattern.period)]
        return tuple(dict.fromkeys(name for name in takes if name is not None))

    @property
    def num_distinct_layers(self) -> int:
        """Blocks with parameters of their own."""
        return self.num_layers if self.distinct_layers is None else self.distinct_layers

    @property
    def branches(self) -> int:
        """Residual branches of the stack."""
        return self.num_layers * len(self.block.connections)

    def inner_gain(self, kind: str) -> float:
        """The factor on initial values of attention's values or of what leads into the feed-forward sublayer."""
        return self.residual_of(kind).inner_gain(self.branches)

    def residual_gain(self, kind: str) -> float:
        """The factor on initial values of what a kind of sublayer adds to the stream."""
        usual = self.branches**-0.5 if self.scale_residual_init else 1.0
        own = self.residual_of(kind).output_gain(self.branches)
        return usual if own is None else own

    @property
    def first_norm(self) -> Norm:
        """Norm of the embedded tokens, which some residual connections ask for."""
        asked = self.residual.embedding_norm and self.embedding_norm == NoNorm()
        return self.norm if asked else self.embedding_norm

    @property
    def last_norm(self) -> Norm:
        """Norm after the last layer."""
        wanted = self.residual.final_norm if self.final_norm is None else self.final_norm
        return self.norm if wanted else NoNorm()

    @property
    def ff_width(self) -> int:
        """F: the width of the feed-forward sublayer."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def example_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes of what the model is called with: one sequence of full length."""
        return (jax.ShapeDtypeStruct((1, self.max_length), jnp.int32),)

    def replace(self, **changes: Any) -> Self:
        """A copy with fields changed; variants as values or in their text form."""
        return replace(self, changes)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """An encoder of the source and a causal decoder of the target that attends to it."""

    sizes = (*ModelConfig.sizes, "source_vocab_size", "max_source_length", "num_encoder_layers")
    source_vocab_size: int | None = None
    """Number of source token types; none: as many as the tokenizer of the data has."""
    max_source_length: int = 64
    """Longest source, in tokens; `max_length` is the longest target."""
    num_encoder_layers: int | None = None
    """Blocks of the encoder; none: as many as num_layers, those of the decoder."""
    share_embeddings: bool = False
    """Whether source and target tokens have one table (with tie_embeddings, one for all three uses)."""

    def __post_init__(self):
        super().__post_init__()
        if not self.causal:
            raise ConfigError("model.causal: the decoder of an encoder-decoder is causal")
        _ = self.encoder  # has its own checks
        if not self.block.attends:
            raise ConfigError(f"model.block: the decoder of {self.block} has no attention; use sequential")
        if self.weighting.relative:
            raise ConfigError(f"model.weighting: {self.weighting} compares positions of source and target; use softmax")
        if self.share_embeddings and self.source_vocab_size != self.vocab_size:
            raise ConfigError(
                f"model.share_embeddings: {self.source_vocab_size} source types and {self.vocab_size} target types "
                "are not one vocabulary"
            )

    def example_inputs(self):
        """A source and a target of full length."""
        return (jax.ShapeDtypeStruct((1, self.max_source_length), jnp.int32), *super().example_inputs())

    @property
    def branches(self) -> int:
        return self.num_layers * (len(self.block.connections) + 1)

    @property
    def encoder(self) -> ModelConfig:
        """The encoder alone."""
        own = {f.name: getattr(self, f.name) for f in fields(ModelConfig)}
        return ModelConfig(
            **own
            | {
                "causal": False,
                "vocab_size": self.source_vocab_size,
                "max_length": self.max_source_length,
                "num_layers": self.num_encoder_layers or self.num_layers,
            }
        )


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ModelConfig):
    """An encoder, a pooling of its tokens, and a linear layer to the classes."""

    sizes = (*ModelConfig.sizes, "num_classes")
    causal: bool = False
    num_classes: int | None = None
    """None: as many as the data has."""
    registers: int = 0
    """Trained vectors before the tokens, which have no say at the end (Burtsev et al. 2020; Darcet et al. 2023)."""
    pooling: Pooling = MeanPooling()
    """How the tokens of a sequence become one vector."""

    @property
    def extra_tokens(self) -> int:
        """Trained vectors before the tokens: the registers, and the token of the pooling where it has one."""
        return self.registers + self.pooling.extra_token

    def __post_init__(self):
        super().__post_init__()
        if self.registers < 0:
            raise ConfigError(f"model.registers: {self.registers} is negative")
        if self.causal and self.registers:
            raise ConfigError("model.registers: they stand before all tokens and in a causal model see none of them")
        if self.causal and self.pooling.extra_token:
            raise ConfigError(
                f"model.pooling: the token of {self.pooling} stands before all others and in a causal model sees none "
                "of them; use mean"
            )


@dataclass(frozen=True, kw_only=True)
class PatchConfig(ModelConfig):
    """A transformer of image patches (Dosovitskiy et al. 2020)."""

    sizes = (*ModelConfig.sizes, "patch_size")
    causal: bool = False
    image_size: tuple[int, ...] | None = None
    """Height, width and channels; none: those of the data."""
    patch_size: int = 4
    """Side of a square patch, in pixels."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches.

        Raises:
          ConfigError: the image size is not known, or the patches do not fill it.
        """
        if self.image_size is None:
            raise ConfigError("model.image_size is not set: there is no data here to take it from")
        height, width, _ = self.image_size
        if height % self.patch_size or width % self.patch_size:
            raise ConfigError(
                f"model.patch_size: patches of {self.patch_size} do not fill images of {height} × {width}; the "
                f"nearest that do have {_nearest_divisor(math.gcd(height, width), self.patch_size)}"
            )
        return height // self.patch_size, width // self.patch_size

    @property
    def patch_dim(self) -> int:
        """Numbers in a patch."""
        return self.patch_size**2 * (self.image_size or (0, 0, 0))[2]

    def example_inputs(self):
        """One image."""
        _ = self.grid
        assert self.image_size is not None
        return (jax.ShapeDtypeStruct((1, *self.image_size), jnp.float32),)


@dataclass(frozen=True, kw_only=True)
class VisionConfig(PatchConfig, ClassifierConfig):
    """A vision transformer: patches, encoder, pooling, classes."""

    sizes = (*PatchConfig.sizes, "num_classes")


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
