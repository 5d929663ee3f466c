"""The shape and the choices of a transformer of tokens."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp

from transformer.activations.activation import GELU, Activation
from transformer.core.parameters import Initializer, Normal
from transformer.core.values import replace
from transformer.feed_forwards.feed_forward import DenseFeedForward, FeedForwardKind
from transformer.mixers.attention.backends import AttentionImplementation, Exact
from transformer.mixers.attention.heads import Heads, HeadSizes, PlainHeads
from transformer.mixers.attention.normalizers import PlainScore, Score, SoftmaxWeighting, Weighting
from transformer.mixers.attention.projections import (
    Concatenate,
    InverseRootScale,
    Merge,
    Projection,
    Scale,
    SeparateProjections,
)
from transformer.mixers.attention.sharing import Carry, NoCarry
from transformer.mixers.attention.sparsity import FullReach, Reach
from transformer.models.blocks import BlockLayout, Sequential
from transformer.models.checks import check_model
from transformer.models.downsampling import FullResolution, Resolution
from transformer.models.layers import Layers, Unrolled
from transformer.models.pattern import Pattern
from transformer.models.readouts import PlainReadout, Readout
from transformer.norms.norm import LayerNorm, NoNorm, Norm
from transformer.positions.absolute import Learned
from transformer.positions.position import Position
from transformer.residuals.residual import PreNorm, Residual


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
        "token_types",
        "convolution",
        "distinct_layers",
        "memory_length",
    )
    """Fields that are positive integers, or None."""
    vocab_size: int | None = None
    """Number of token types; None: as many as the tokenizer of the data has."""
    max_length: int = 64
    """Longest sequence the model is built for, in tokens."""
    num_layers: int = 4
    """Number of blocks, each an attention and a feed-forward sublayer."""
    d_model: int = 128
    """Width of the residual stream."""
    num_heads: int = 4
    """Query heads."""
    num_kv_heads: int | None = None
    """Key-value heads shared by groups of query heads; None: as many as query heads."""
    head_dim: int | None = None
    """Size of a head; None: d_model / num_heads."""
    d_ff: int | None = None
    """Width of the feed-forward sublayer; None: 4 d_model."""
    causal: bool = True
    """Whether a token sees only itself and those before it (a decoder), or all tokens (an encoder)."""
    norm: Norm = LayerNorm()
    """Normalization method."""
    residual: Residual = PreNorm()
    """How sublayers are connected to the stream, and where the norms sit."""
    feed_forward_residual: Residual | None = None
    """The same for feed-forward sublayers; None (`unset` on the command line): as residual."""
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
    """Blocks with parameters of their own, repeated up to num_layers (Lan et al. 2020, ALBERT); None: all."""
    projection: Projection = SeparateProjections()
    """Which linear layers make queries, keys and values."""
    heads: Heads = PlainHeads()
    """Kind of heads."""
    scale: Scale = InverseRootScale()
    """The factor on q·k."""
    score: Score = PlainScore()
    """Function of the scaled scores of self-attention, and where it reads no positions of cross-attention."""
    weighting: Weighting = SoftmaxWeighting()
    """How scores become weights."""
    scale_bias: bool = False
    """Whether the factor multiplies the bias of the position too: scale · (q·k + bias)."""
    merge: Merge = Concatenate()
    """How the outputs of the heads become one vector."""
    reach: Reach = FullReach()
    """Which tokens self-attention reaches, besides the mask."""
    carry: Carry = NoCarry()
    """What attention takes over from earlier layers."""
    resolution: Resolution = FullResolution()
    """Whether middle layers see a shortened sequence."""
    memory_length: int | None = None
    """Tokens before a segment whose states every layer sees too (Transformer-XL, Dai et al. 2019); None: no memory."""
    qk_norm: Norm = NoNorm()
    """Norm of the queries and keys of each head (Henry et al. 2020; Dehghani et al. 2023)."""
    value_norm: Norm = NoNorm()
    """Norm of the values of each head (HybridNorm, Zhuo et al. 2025)."""
    embedding_norm: Norm = NoNorm()
    """Norm of the embedded tokens (BLOOM, 2022)."""
    attention_inner_norm: Norm = NoNorm()
    """Norm before the output projection of attention; `none` where the residual does not ask for one (`sub`)."""
    feed_forward_inner_norm: Norm = NoNorm()
    """The same in the feed-forward sublayer (NormFormer, Shleifer et al. 2021)."""
    final_norm: bool | None = None
    """Whether the stream is normalized after the last layer; None: as residual says."""
    convolution: int | None = None
    """Tokens spanned by a causal convolution of queries, keys and values (Primer, So et al. 2021); None: none."""
    head_scale: bool = False
    """Multiply the output of each head by a trained number (NormFormer, Shleifer et al. 2021, equation 2)."""
    attention_gate: bool = False
    """Multiply the heads' outputs by σ(xW) (Qiu et al. 2025, position G1)."""
    value_gate: bool = False
    """Multiply the projected values by σ(xW) (Qiu et al. 2025, position G2)."""
    attention_bias: tuple[Literal["query", "key", "value", "out"], ...] = ()
    """Which projections of attention have a bias."""
    feed_forward_bias: bool = False
    """Whether the feed-forward sublayer has biases."""
    future_tokens: int = 0
    """Tokens beyond the next one that are predicted, each by a block of its own (Gloeckle et al. 2024)."""
    tie_embeddings: bool = True
    """Whether the output projection is the transposed token embedding."""
    embedding_dim: int | None = None
    """E: width of the token tables, which a matrix then projects to d_model (Lan et al. 2020); None: d_model."""
    unit_embeddings: bool = False
    """Whether all rows of the token tables have one trained length (FixNorm, Nguyen and Chiang 2018)."""
    readout: Readout = PlainReadout()
    """Function applied to states before the output projection."""
    output_bias: bool = False
    """Add a trained number to the logit of each token."""
    logit_score: Score = PlainScore()
    """Function applied to every logit, such as a soft cap (Gemma 2, 2024)."""
    token_types: int | None = None
    """Kinds of tokens, each with a vector added to the embedding (the segments of BERT); None: no such vectors."""
    logit_scale: float = 1.0
    """Factor on the states that the output projection reads, and so on the logits."""
    scale_embeddings: bool = False
    """Multiply token embeddings by √d_model (Vaswani et al. 2017, section 3.4)."""
    dropout: float = 0.0
    """Share of features dropped after the embedding and after each sublayer while training."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped."""
    feed_forward_dropout: float = 0.0
    """Share of features dropped after the activation."""
    stochastic_depth: float = 0.0
    """Share of sequences that skip a sublayer of the last layer, rising linearly with depth (Huang et al. 2016)."""
    initializer: Initializer = Normal(0.02)
    """Initial values of matrices."""
    embedding_initializer: Initializer = Normal(0.02)
    """Initial values of token embeddings."""
    scale_residual_init: bool = True
    """Whether initial residual outputs are divided by √branches, two in a block (GPT-2, Radford et al. 2019)."""
    scale_init_by_depth: bool = False
    """Whether random initial matrices of block l, from 1, are divided by √l (DS-Init, Zhang B. et al. 2019)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype of products and the residual stream; parameters, norms, softmax and loss are float32."""

    def __post_init__(self):
        check_model(self)

    def layer_config(self, layer: int) -> "ModelConfig":
        """The config as one layer sees it, with the choices of the pattern, some of which are valid only there."""
        view = copy.copy(self)
        for name, value in self.pattern.changes(layer).items():
            object.__setattr__(view, name, value)
        return view

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
        """What layers take over from earlier ones: fields of `Carried`."""
        takes = [self.layer_config(layer).carry.takes for layer in range(self.pattern.period)]
        return tuple(dict.fromkeys(name for name in takes if name is not None))

    @property
    def num_distinct_layers(self) -> int:
        """Blocks with parameters of their own."""
        return self.num_layers if self.distinct_layers is None else self.distinct_layers

    @property
    def mixes_tokens(self) -> str:
        """The text of a choice that looks at all tokens whatever the mask; empty without one."""
        layers = [self.layer_config(layer) for layer in range(self.pattern.period)]
        own = [choice for layer in layers for choice in (layer.feed_forward, layer.reach)]
        return next(
            (str(choice) for choice in (self.norm, self.embedding_norm, self.resolution, *own) if choice.mixes_tokens),
            "",
        )

    @property
    def relative(self) -> bool:
        """Whether only distances between tokens matter, so that all positions may be shifted together."""
        layers = [self.layer_config(layer) for layer in range(self.pattern.period)]
        # The features of a rotated query in a linear weighting depend on the angle.
        each = all(layer.position.relative and layer.reach.relative for layer in layers)
        return self.position.relative and self.score.relative and each and not self.weighting.linear

    @property
    def branches(self) -> int:
        """Number of residual branches of the stack."""
        turn = [len(self.layer_config(layer).block.connections) for layer in range(self.pattern.period)]
        return sum(turn) * self.num_layers // self.pattern.period

    def inner_gain(self, kind: str) -> float:
        """The factor on initial values of the value projection or of the feed-forward sublayer's input projection."""
        return self.residual_of(kind).inner_gain(self.branches)

    def residual_gain(self, kind: str) -> float:
        """The factor on initial values of the output projection of a kind of sublayer."""
        usual = self.branches**-0.5 if self.scale_residual_init else 1.0
        own = self.residual_of(kind).output_gain(self.branches)
        return usual if own is None else own

    @property
    def embedding_gain(self) -> float:
        """The factor on initial values of token embeddings."""
        return self.residual.embedding_gain(self.branches)

    def inner_norm(self, kind: str) -> Norm:
        """Norm before the output projection of a kind of sublayer, which some residual connections require."""
        own = self.feed_forward_inner_norm if kind == "feed_forward" else self.attention_inner_norm
        return self.norm if self.residual_of(kind).inner_norms and own == NoNorm() else own

    @property
    def first_norm(self) -> Norm:
        """Norm of the embedded tokens, which some residual connections require."""
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
        """A copy with fields changed; variants are given as values or in their text form."""
        return replace(self, changes)
