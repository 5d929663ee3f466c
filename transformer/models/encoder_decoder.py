"""An encoder of a source and a decoder of the target that attends to it."""

import functools

import jax
import jax.numpy as jnp
from einops import repeat
from flax import nnx

from transformer.core.modules import Parameters, at, below
from transformer.core.names import scope
from transformer.core.parameters import Normal, Parameter
from transformer.functional.cache import Cache, Reader
from transformer.functional.masks import Mask, Tokens
from transformer.models.architectures import EncoderDecoderConfig
from transformer.models.context import Source
from transformer.models.embedding import Embedding
from transformer.models.logits import Logits
from transformer.models.transformer import Transformer


class EncoderDecoder(nnx.Module):
    """The transformer of Vaswani et al. 2017."""

    def __init__(self, config: EncoderDecoderConfig, *, key: jax.Array):
        self.config = config
        self.encoder = Transformer(config.encoder, key=at(key, "encoder"))
        self.decoder = Transformer(config, cross=True, key=at(key, "decoder"))

        def table(name, vocab_size):
            return Embedding(vocab_size, config, key=at(key, name))

        registers = Parameter((config.registers, config.d_model), Normal(0.02), decay=False)
        self.extra = Parameters({"registers": registers} if config.registers else {}, key=at(key, "extra"))
        self.embedding = table("embedding", config.vocab_size)
        self.source_embedding = None if config.share_embeddings else table("source_embedding", config.source_vocab_size)
        self.output = None if config.tie_embeddings else table("output", config.vocab_size)
        self.logits = Logits(config, key=at(key, "logits"))

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
        tokens, own = Tokens.at(jnp.arange(target_BL.shape[1]), valid=valid_BL), below(key, "decoder")
        with scope("decoder"):
            x_BLD, more = self.decoder.transform(self.embedding(target_BL), tokens, source=source, key=own)
        logits_BLV = self._logits(x_BLD)
        return (logits_BLV, penalty + more) if with_penalty else logits_BLV

    def encode(
        self, source_BS: jax.Array, source_valid_BS: jax.Array | None = None, *, key=None
    ) -> tuple[Source, jax.Array]:
        """(states of the source, for the decoder; what the layers add to the loss)."""
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        x_BSD, registers = embedding(source_BS), self.config.registers
        for vectors_RD in self.extra().values():
            x_BSD = jnp.concatenate([repeat(vectors_RD.astype(x_BSD.dtype), "r d -> b r d", b=len(x_BSD)), x_BSD], 1)
        if source_valid_BS is not None:
            source_valid_BS = jnp.pad(source_valid_BS, ((0, 0), (registers, 0)), constant_values=True)
        tokens = Tokens.at(jnp.arange(x_BSD.shape[1]), valid=source_valid_BS)
        with scope("encoder"):
            states_BSD, penalty = self.encoder.transform(x_BSD, tokens, key=key)
        return Source(tokens, states_BSD), penalty

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
        with scope("decoder"):
            x_BLD, cache = self.decoder.transform_next(
                self.embedding(tokens_BL), cache, valid_BL=valid_BL, mask=mask, blocks=blocks
            )
        return self._logits(x_BLD), cache

    def reader(self) -> Reader:
        """`extend` for use in a loop: the stacked layers are taken apart once, here."""
        return functools.partial(self.extend, blocks=list(self.decoder.blocks))

    def _logits(self, x_BLD: jax.Array) -> jax.Array:
        return self.logits(x_BLD, self.embedding if self.output is None else self.output)
