"""The shape and the choices of a transformer of tokens."""

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from transformer.core.changes import Config, replace
from transformer.core.json import later
from transformer.core.parameters import Initializer, Normal
from transformer.core.weights import Weights
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Mixer
from transformer.models.blocks import BlockLayout, ResolvedSublayer, Sequential
from transformer.models.checks import check_model
from transformer.models.downsampling import Downsampling
from transformer.models.pattern import Alternate
from transformer.models.stack import Layers, Unrolled
from transformer.norms.norm import LayerNorm, Norm
from transformer.positions.absolute import Learned
from transformer.positions.position import Position
from transformer.residuals.residual import PreNorm, Residual


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """A transformer of tokens: a tree of values. What is None is not there."""

    sizes: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "max_length",
        "num_layers",
        "d_model",
        "distinct_layers",
        "memory_length",
    )
    """Fields that are positive integers, or None."""
    kind: ClassVar[str] = "tokens"
    """What the model answers; an objective fits one kind."""
    vocab_size: int | None = None
    """Number of token types; None: as many as the tokenizer of the data has."""
    max_length: int = 64
    """Longest sequence the model is built for, in tokens."""
    num_layers: int = 4
    """Number of blocks, each with a mixer and a feed-forward sublayer."""
    d_model: int = 128
    """Width of the residual stream."""
    causal: bool = True
    """Whether a token sees only itself and those before it (a decoder), or all tokens (an encoder)."""
    mixer: Mixer | None = Attention()
    """How tokens exchange information; None: they do not."""
    feed_forward: FeedForward | None = FeedForward()
    """The position-wise network, or several experts; None: none."""
    block: BlockLayout = Sequential()
    """Sublayers of a block and their order."""
    norm: Norm | None = LayerNorm()
    """Normalization method."""
    residual: Residual = PreNorm()
    """How sublayers are connected to the stream, and where the norms sit."""
    position: Position | None = Learned()
    """Positional scheme; without one a causal mask still distinguishes positions (Kazemnejad et al. 2023)."""
    embedding: Embedding = Embedding()
    """How tokens become vectors."""
    head: Head = Head()
    """How states become logits."""
    pattern: tuple[Alternate, ...] = ()
    """What changes from layer to layer."""
    layers: Layers = Unrolled()
    """How the stack of blocks is run."""
    distinct_layers: int | None = None
    """Blocks with parameters of their own, repeated up to num_layers (Lan et al. 2020, ALBERT); None: all."""
    downsampling: Downsampling | None = None
    """How middle layers see a shorter sequence, or vectors that read it; None: every layer sees every token."""
    memory_length: int | None = None
    """Tokens before a segment whose states every layer sees too (Transformer-XL, Dai et al. 2019); None: no memory."""
    predict_ahead: int = 0
    """Tokens beyond the next one that are predicted, each by a block of its own (Gloeckle et al. 2024)."""
    embedding_norm: Norm | None = None
    """Norm of the embedded tokens (BLOOM, 2022); None: none, or `norm` where the residual asks for one (`peri`)."""
    final_norm: bool | None = None
    """Whether the stream is normalized after the last layer; None: as residual says."""
    dropout: float = 0.0
    """Share of features dropped after the embedding and after each sublayer while training."""
    stochastic_depth: float = 0.0
    """Share of sequences that skip a residual connection of the last layer, rising linearly with depth (Huang et al.
    2016)."""
    initializer: Initializer = Normal(0.02)
    """Initial values of matrices."""
    weights: Weights | None = later(None)
    """How linear layers make their matrices; None: the kernel is the matrix."""
    scale_residual_init: bool = True
    """Whether initial residual outputs are divided by √branches, two in a block (GPT-2, Radford et al. 2019)."""
    scale_init_by_depth: bool = False
    """Whether random initial matrices of block l, from 1, are divided by √l (DS-Init, Zhang B. et al. 2019)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype of products and the residual stream; parameters, norms, softmax and loss are float32."""

    def __post_init__(self):
        if isinstance(self.pattern, tuple) and all(isinstance(one, Alternate) for one in self.pattern):
            object.__setattr__(self, "pattern", tuple(one.resolved(self) for one in self.pattern))
        check_model(self)

    def layer_config(self, layer: int) -> "ModelConfig":
        """The config as one layer sees it, with the choices of the pattern, some of which are valid only there."""
        if not self.pattern:
            return self
        view = copy.copy(self)
        for one in self.pattern:
            head, _, rest = one.path.partition(".")
            value = one.values[layer % len(one.values)]
            object.__setattr__(view, head, replace(getattr(view, head), {rest: value}) if rest else value)
        return view

    @property
    def period(self) -> int:
        """Number of layers after which the pattern repeats."""
        return math.lcm(*(len(one.values) for one in self.pattern))

    @property
    def kinds(self) -> list["ModelConfig"]:
        """The config as each kind of layer sees it, in the order of the pattern."""
        return [self.layer_config(layer) for layer in range(self.period)]

    @property
    def connections(self) -> tuple[tuple[ResolvedSublayer, ...], ...]:
        """The sublayers of a block, those of one residual connection together."""
        return self.block.of(self)

    @property
    def built(self) -> tuple[tuple[ResolvedSublayer, ...], ...]:
        """The connections that the module of a block has."""
        return self.connections

    @property
    def sublayers(self) -> dict[str, Mixer | FeedForward]:
        """The sublayers of a block, by name."""
        return {made.name: made.value for connection in self.connections for made in connection}

    @property
    def mixers(self) -> list[Mixer]:
        """The mixers of a block."""
        return [value for value in self.sublayers.values() if isinstance(value, Mixer)]

    @property
    def looks_back(self) -> bool:
        """Whether the feed-forward sublayer of a token reads those before it."""
        return self.feed_forward is not None and self.feed_forward.span(self) > 1

    @property
    def attention(self) -> Attention | None:
        """The attention of a block; None: it has none."""
        return next((mixer for mixer in self.mixers if isinstance(mixer, Attention)), None)

    @property
    def num_maps(self) -> int:
        """Number of attention maps of the layers; 0 without attention."""
        counts = (mixer.num_maps(kind) for kind in self.kinds for mixer in kind.mixers)
        return next((count for count in counts if count), 0)

    @property
    def shares(self) -> tuple[str, ...]:
        """What layers take over from earlier ones: fields of `Shared`."""
        takes = [mixer.shares for kind in self.kinds for mixer in kind.mixers]
        return tuple(dict.fromkeys(name for name in takes if name is not None))

    @property
    def num_distinct_layers(self) -> int:
        """Blocks with parameters of their own."""
        return self.num_layers if self.distinct_layers is None else self.distinct_layers

    @property
    def mixing_choice(self) -> Any | None:
        """A choice that looks at all tokens whatever the mask; None without one."""
        choices: list[Any] = [self.norm, self.embedding_norm, self.downsampling]
        choices += [sublayer for kind in self.kinds for sublayer in kind.sublayers.values()]
        return next((choice for choice in choices if choice is not None and choice.mixes_tokens), None)

    @property
    def relative(self) -> bool:
        """Whether only distances between tokens matter, so that all positions may be shifted together."""
        positions = [kind.position for kind in (self, *self.kinds)]
        by_distance = all(position is None or position.relative for position in positions)
        return by_distance and all(mixer.relative for kind in self.kinds for mixer in kind.mixers)

    @property
    def branches(self) -> int:
        """Number of residual branches of the stack."""
        return sum(len(kind.built) for kind in self.kinds) * self.num_layers // self.period

    def inner_gain(self, residual: Residual) -> float:
        """The factor on initial values of what a sublayer of this connection reads its input by."""
        return residual.inner_gain(self.branches)

    def output_gain(self, residual: Residual) -> float:
        """The factor on initial values of the output projection of a sublayer of this connection."""
        usual = self.branches**-0.5 if self.scale_residual_init else 1.0
        own = residual.output_gain(self.branches)
        return usual if own is None else own

    @property
    def embedding_gain(self) -> float:
        """The factor on initial values of token embeddings."""
        return self.residual.embedding_gain(self.branches)

    def inner_norm(self, own: Norm | None, residual: Residual) -> Norm | None:
        """Norm before the output projection of a sublayer, which some residual connections require."""
        return self.norm if residual.inner_norms and own is None else own

    @property
    def first_norm(self) -> Norm | None:
        """Norm of the embedded tokens, which some residual connections require."""
        return self.norm if self.residual.embedding_norm and self.embedding_norm is None else self.embedding_norm

    @property
    def last_norm(self) -> Norm | None:
        """Norm after the last layer."""
        return self.norm if (self.residual.final_norm if self.final_norm is None else self.final_norm) else None

    def example_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes of what the model is called with: one sequence of full length."""
        return (jax.ShapeDtypeStruct((1, self.max_length), jnp.int32),)
