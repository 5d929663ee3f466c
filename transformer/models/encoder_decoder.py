"""An encoder of a source and a decoder of the target that attends to it."""

import functools
from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.arrays import check_ids
from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at, below
from transformer.embeddings.embedding import EmbeddingLayer, HeadLayer
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.cache import Cache, Reader
from transformer.functional.masks import Mask, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.cross_attention import CrossAttention
from transformer.mixers.mixer import Source
from transformer.models.blocks import ResolvedSublayer
from transformer.models.checks import refuse_token_values
from transformer.models.config import ModelConfig
from transformer.models.decoder import Decoder
from transformer.models.downsampling import Downsampling
from transformer.models.pattern import mapped
from transformer.models.registers import behind, check_registers, register_parameters
from transformer.models.transformer import Transformer
from transformer.residuals.residual import Residual


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """An encoder of the source and a causal decoder of the target that attends to it."""

    kind = "pairs"
    sizes = (
        *ModelConfig.sizes,
        "source_vocab_size",
        "max_source_length",
        "num_encoder_layers",
        "distinct_encoder_layers",
    )
    source_vocab_size: int | None = None
    """Number of source token types; None: as many as the tokenizer of the data has."""
    max_source_length: int = 64
    """Longest source, in tokens; `max_length` is the longest target."""
    num_encoder_layers: int | None = None
    """Blocks of the encoder; None: as many as the decoder has (num_layers)."""
    distinct_encoder_layers: int | None = None
    """Blocks of the encoder with parameters of their own, as `distinct_layers`; None: as that says for both."""
    encoder_downsampling: Downsampling | None = None
    """How layers of the encoder see a shortened source; None: they do not."""
    registers: int = 0
    """Trained vectors before the source, which the decoder sees too (Burtsev et al. 2020)."""
    share_embeddings: bool = False
    """Whether source and target tokens share one table (with head.tied, the output projection too)."""

    def __post_init__(self):
        super().__post_init__()
        if not self.causal:
            raise ConfigError("model.causal: the decoder of an encoder-decoder is causal")
        _ = self.encoder  # has its own checks
        refuse_token_values(self)
        if self.downsampling is not None:
            raise ConfigError(
                f"model.downsampling: {self.downsampling} has no cache of layers with a source; set "
                "encoder_downsampling"
            )
        check_registers(self)
        if self.embedding.types is not None:
            raise ConfigError("embedding.types: an encoder-decoder has no types of tokens")
        for kind in self.kinds:
            if kind.attention is None:
                raise ConfigError(f"model.mixer: the decoder of mixer={kind.mixer or 'none'} has no attention")
            if kind.attention.normalizer is not None and kind.attention.normalizer.ordered:
                raise ConfigError(
                    f"mixer.normalizer: {kind.attention.normalizer} compares positions of source and target; use none"
                )
        if self.share_embeddings and self.source_vocab_size != self.vocab_size:
            raise ConfigError(
                f"model.share_embeddings: {self.source_vocab_size} source types and {self.vocab_size} target types "
                "are not one vocabulary"
            )

    def example_inputs(self):
        """Shapes of a source and a target of full length."""
        return (jax.ShapeDtypeStruct((1, self.max_source_length), jnp.int32), *super().example_inputs())

    @property
    def built(self):
        """With attention to the source behind that of self-attention."""
        attention, connections = self.attention, self.connections
        assert attention is not None
        number = next(i for i, c in enumerate(connections) if any(isinstance(made.value, Attention) for made in c))
        build = functools.partial(CrossAttention, attention)
        cross = ResolvedSublayer("cross_attention", attention, build, 1.0, self.residual)
        return (*connections[: number + 1], (cross,), *connections[number + 1 :])

    @property
    def encoder(self) -> ModelConfig:
        """The config of the encoder."""
        own = {f.name: getattr(self, f.name) for f in fields(ModelConfig)}
        num_layers = self.num_encoder_layers or self.num_layers

        def residual(one: Residual | None) -> Residual | None:
            return one and one.of_encoder(num_layers, self.num_layers)

        def feed_forward(one: FeedForward | None) -> FeedForward | None:
            return one and replace(one, residual=residual(one.residual))

        ways = {"residual": residual, "feed_forward": feed_forward, "feed_forward.residual": residual}
        changes = {
            "causal": False,
            "vocab_size": self.source_vocab_size,
            "max_length": self.max_source_length + self.registers,
            "downsampling": self.encoder_downsampling,
            "num_layers": num_layers,
            "distinct_layers": self.distinct_encoder_layers or self.distinct_layers,
            "residual": residual(self.residual),
            "feed_forward": feed_forward(self.feed_forward),
            "pattern": mapped(self.pattern, ways),
        }
        return ModelConfig(**own | changes)


class EncoderDecoder(nnx.Module):
    """The transformer of Vaswani et al. 2017."""

    def __init__(self, config: EncoderDecoderConfig, *, key: jax.Array):
        check_kind(config, EncoderDecoderConfig, "EncoderDecoder")
        self.config = config
        self.encoder = Transformer(config.encoder, key=at(key, "encoder"))
        self.decoder = Decoder(config, key=at(key, "decoder"))

        def table(name, vocab_size, gain=config.embedding_gain):
            return EmbeddingLayer(vocab_size, config, gain=gain, key=at(key, name))

        self.extra = Parameters(register_parameters(config), key=at(key, "extra"))
        self.embedding = table("embedding", config.vocab_size)
        self.source_embedding = None if config.share_embeddings else table("source_embedding", config.source_vocab_size)
        self.output = None if config.head.tied else table("output", config.vocab_size, gain=1.0)
        self.logits = HeadLayer(config, key=at(key, "logits"))

    def __call__(
        self,
        source_BS: jax.Array,
        target_BL: jax.Array,
        *,
        source_valid_BS: jax.Array | None = None,
        valid_BL: jax.Array | None = None,
        key: jax.Array | None = None,
        with_penalty: bool = False,
    ):
        """Logits (B, L, V), float32; those at position t are for the target token at t + 1.

        Args:
          source_BS: integers in [0, source vocabulary).
          target_BL: integers in [0, V).
          source_valid_BS: False for padding of the source.
          valid_BL: the same for the target.
          key: turns dropout on.
          with_penalty: whether to also return what the layers add to the loss, a scalar.
        """
        source, penalty = self.encode(source_BS, source_valid_BS, key=below(key, "encoder"))
        with jax.named_scope("decoder"):
            x_BLD = self.embedding(target_BL)  # first: it says what is wrong with tokens
            _check_rows(source_BS, len(x_BLD), "targets")
            tokens = Tokens.first(x_BLD.shape[1], valid=valid_BL)
            x_BLD, more = self.decoder.transform(x_BLD, tokens, source=source, key=below(key, "decoder"))
        logits_BLV = self._logits(x_BLD)
        return (logits_BLV, penalty + more) if with_penalty else logits_BLV

    def encode(
        self, source_BS: jax.Array, source_valid_BS: jax.Array | None = None, *, key=None
    ) -> tuple[Source, jax.Array]:
        """(states of the source, for the decoder; what the layers add to the loss)."""
        check_ids(source_BS, self._of_source.vocab_size, "source token")
        x_BSD = self._of_source(source_BS)
        for registers_ED in self.extra().values():
            x_BSD, source_valid_BS = behind(registers_ED, x_BSD, source_valid_BS)
        tokens = Tokens.first(x_BSD.shape[1], valid=source_valid_BS)
        with jax.named_scope("encoder"):
            states_BSD, penalty = self.encoder.transform(x_BSD, tokens, key=key)
        return Source(tokens, states_BSD), penalty

    def vocabularies(self) -> dict[str, int]:
        """The number of tokens that a prompt, the beginning of a target, and a source may have."""
        return {"prompt": self.embedding.vocab_size, "source_BS": self._of_source.vocab_size}

    def start(
        self,
        batch_size: int,
        capacity: int,
        source_BS: jax.Array,
        source_valid_BS: jax.Array | None = None,
        *,
        ahead: int = 0,
    ) -> Cache:
        """A cache without target tokens, of which the latest `ahead` can be undone (`rewind`).

        Keys and values of the source are computed here, once.
        """
        source, _ = self.encode(source_BS, source_valid_BS)
        _check_rows(source_BS, batch_size, "prompts")
        cache = self.decoder.empty_cache(batch_size, capacity, ahead, self.embedding.dtype)
        remembered = tuple(
            block.cross_attention.remember(source.states_BSD)  # pyright: ignore[reportAttributeAccessIssue]
            for block in self.decoder.blocks
        )
        return cache._replace(source=remembered, source_tokens=source.tokens)

    def extend(
        self,
        tokens_BL: jax.Array,
        cache: Cache,
        *,
        valid_BL: jax.Array | None = None,
        mask: Mask | None = None,
        blocks=None,
    ) -> tuple[jax.Array, Cache]:
        """(logits (B, L, V) after each of these target tokens, the cache with them); they follow those in the cache.

        `mask` is as in `LanguageModel.extend`.
        """
        with jax.named_scope("decoder"):
            x_BLD, cache = self.decoder.transform_next(
                self.embedding(tokens_BL), cache, valid_BL=valid_BL, mask=mask, blocks=blocks
            )
        return self._logits(x_BLD), cache

    def reader(self) -> Reader:
        """`extend` for use in a loop: the stacked layers are taken apart once, here."""
        return functools.partial(self.extend, blocks=list(self.decoder.blocks))

    @property
    def _of_source(self) -> EmbeddingLayer:
        """The embedding of source tokens."""
        return self.embedding if self.source_embedding is None else self.source_embedding

    def _logits(self, x_BLD: jax.Array) -> jax.Array:
        return self.logits(x_BLD, self.embedding if self.output is None else self.output)


def _check_rows(source_BS: jax.Array, count: int, of: str) -> None:
    """Raise `ConfigError` where there is not a source for each target."""
    if len(source_BS) != count:
        raise ConfigError(f"source_BS: {len(source_BS)} sources for {count} {of}; each needs its own")
