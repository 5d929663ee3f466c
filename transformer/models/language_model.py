"""Tokens in, logits of tokens out: decoder-only, masked or prefix language models."""

import copy
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.checks import wrong_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import at, below
from transformer.embeddings.embedding import EmbeddingLayer, HeadLayer, ValueEmbedding
from transformer.functional.cache import Cache, Reader
from transformer.functional.masks import Mask, Tokens
from transformer.functional.segment_memory import SegmentMemory, empty_segment_memory
from transformer.mixers.mixer import Context, Shared
from transformer.models.config import ModelConfig
from transformer.models.decoder import Decoder
from transformer.models.transformer import Block


class LanguageModel(Decoder):
    """A causal language model (Radford et al. 2018); with `causal=False` a masked one (Devlin et al. 2018).

    Call it eagerly in a notebook; `transformer.split` gives the pure form for everything else.
    """

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        if isinstance(config, ModelConfig) and config.kind != ModelConfig.kind:
            raise wrong_kind(config, ModelConfig, "LanguageModel")
        super().__init__(config, key=key)
        self.embedding = EmbeddingLayer(
            config.vocab_size, config, with_types=True, gain=config.embedding_gain, key=at(key, "embedding")
        )
        self.shares_ids = "token_ids" in config.shares
        self.value_embedding = self._make_value_embedding(key=at(key, "value_embedding"))
        self.future = nnx.List(Block(_alone(config), key=at(key, "future", i)) for i in range(config.predict_ahead))
        # Untied, the output has its own table; Press and Wolf 2017 tie the two.
        self.output = None if config.head.tied else EmbeddingLayer(config.vocab_size, config, key=at(key, "output"))
        self.logits = HeadLayer(config, key=at(key, "logits"))

    def _make_value_embedding(self, *, key: jax.Array) -> ValueEmbedding | None:
        """The table of values, where some layer takes them over."""
        attentions = [(kind, kind.attention) for kind in self.config.kinds if kind.attention is not None]
        shape = next((own.shape(kind) for kind, own in attentions if own.shares == "token_values"), None)
        if shape is None:
            return None
        return ValueEmbedding(shape.num_kv_heads, shape.value_size, self.config, key=key)

    def __call__(
        self,
        tokens_BL: jax.Array,
        *,
        positions_BL: jax.Array | None = None,
        segments_BL: jax.Array | None = None,
        valid_BL: jax.Array | None = None,
        types_BL: jax.Array | None = None,
        mask: Mask | None = None,
        key: jax.Array | None = None,
        with_penalty: bool = False,
    ):
        """Logits (B, L, V), float32; of a causal model those at position t are for the token at t + 1.

        Args:
          tokens_BL: integers in [0, V).
          positions_BL: (B or 1, L); None counts from 0.
          segments_BL: which packed document a token belongs to; documents do not see each other.
          valid_BL: False for padding, which nothing attends to.
          types_BL: the type of each token, in a model with `embedding.types`; None: 0.
          mask: replaces the model's own direction: `Causal() | Prefix(n)` gives a prefix language
            model; padding and segments are always respected.
          key: turns dropout on.
          with_penalty: whether to also return what the layers add to the loss, a scalar.

        Raises:
          ConfigError: the tokens are more than `max_length`, and the position does not extrapolate.
        """
        rows = {"positions_BL": positions_BL, "segments_BL": segments_BL, "valid_BL": valid_BL, "types_BL": types_BL}
        x_BLD, penalty = self.states(tokens_BL, **rows, mask=mask, key=key, with_penalty=True)
        logits_BLV = self.read_out(x_BLD)
        return (logits_BLV, penalty) if with_penalty else logits_BLV

    def states(
        self,
        tokens_BL: jax.Array,
        *,
        positions_BL: jax.Array | None = None,
        segments_BL: jax.Array | None = None,
        valid_BL: jax.Array | None = None,
        types_BL: jax.Array | None = None,
        mask: Mask | None = None,
        key: jax.Array | None = None,
        with_penalty: bool = False,
    ):
        """The final states (B, L, D) of which `read_out` makes the logits; arguments as in a call."""
        x_BLD = self.embedding(tokens_BL, types_BL)  # first: it says what is wrong with tokens
        shared = self._shared(tokens_BL)
        tokens = _tokens(tokens_BL.shape[1], positions_BL, segments_BL, valid_BL)
        x_BLD, penalty = self.transform(x_BLD, tokens, mask=mask, shared=shared, key=key)
        return (x_BLD, penalty) if with_penalty else x_BLD

    def predict_ahead(
        self,
        tokens_BL: jax.Array,
        *,
        positions_BL: jax.Array | None = None,
        segments_BL: jax.Array | None = None,
        valid_BL: jax.Array | None = None,
        key: jax.Array | None = None,
        with_penalty: bool = False,
    ) -> Any:
        """Logits (1 + predict_ahead, B, L, V): those of `__call__` for the next token, then for each later one.

        For each later token one more block reads the output of the stack (Gloeckle et al. 2024, section 2, where these
        blocks stand beside the last of the stack and read what that reads).
        """
        x_BLD = self.embedding(tokens_BL)  # first, as in `__call__`
        tokens = _tokens(tokens_BL.shape[1], positions_BL, segments_BL, valid_BL)
        context = Context(tokens, self.mask_of(tokens), shared=self._shared(tokens_BL))
        stream, penalty, context, _ = self.through_blocks(x_BLD, context, key=key)
        streams, last = [stream], self.config.num_layers - 1
        for i, block in enumerate(self.future):
            with jax.named_scope(f"future.{i}"):
                ahead, aux = block(stream, context=context, layer=last, key=below(key, "future", i))
            streams, penalty = [*streams, ahead], penalty + aux.penalty
        logits = jnp.stack([self.read_out(self.states_of(stream, tokens.valid)) for stream in streams])
        return (logits, penalty) if with_penalty else logits

    def empty_memory(self, batch_size: int) -> SegmentMemory:
        """The empty memory with which texts begin, with room for `memory_length` tokens.

        Raises:
          ConfigError: the model keeps no memory.
        """
        if self.config.memory_length is None:
            raise ConfigError("model.memory_length is not set, so the model has no memory of earlier segments")
        sizes = (self.config.num_layers, self.config.memory_length, self.config.d_model)
        return empty_segment_memory(batch_size, *sizes, self.embedding.dtype)

    def read_segment(
        self, tokens_BL: jax.Array, memory: SegmentMemory, *, key: jax.Array | None = None, with_penalty: bool = False
    ) -> Any:
        """(logits (B, L, V) of the next segment, memory for the one after it) (Dai et al. 2019).

        Tokens also attend to the states of the `memory_length` tokens before the segment, without a gradient.
        """
        x_BLD, penalty, memory = self.transform_segment(self.embedding(tokens_BL), memory, key=key)
        answer = self.read_out(x_BLD), memory
        return (answer, penalty) if with_penalty else answer

    def vocabularies(self) -> dict[str, int]:
        """The number of tokens that a prompt may have."""
        return {"prompt": self.embedding.vocab_size}

    def start(self, batch_size: int, capacity: int, *, ahead: int = 0) -> Cache:
        """An empty cache for `capacity` tokens, of which the latest `ahead` can be undone (`rewind`)."""
        return self.empty_cache(batch_size, capacity, ahead, self.embedding.dtype)

    def extend(
        self,
        tokens_BL: jax.Array,
        cache: Cache,
        *,
        valid_BL: jax.Array | None = None,
        mask: Mask | None = None,
        blocks=None,
    ) -> tuple[jax.Array, Cache]:
        """(logits (B, L, V) after each of these tokens, the cache with them); they follow those in the cache.

        `mask` is as in `__call__`: new tokens may see each other, earlier ones do not see them.
        """
        x_BLD, cache = self.transform_next(
            self.embedding(tokens_BL),
            cache,
            valid_BL=valid_BL,
            mask=mask,
            shared=self._shared(tokens_BL),
            blocks=blocks,
        )
        return self.read_out(x_BLD), cache

    def reader(self) -> Reader:
        """`extend` for use in a loop: the stacked layers are taken apart once, here."""
        return functools.partial(self.extend, blocks=list(self.blocks))

    def _shared(self, tokens_BL: jax.Array) -> Shared:
        """What the first layer takes over."""
        values = None if self.value_embedding is None else self.value_embedding(tokens_BL)
        return Shared(token_values=values, token_ids=tokens_BL if self.shares_ids else None)

    def read_out(self, x_BLD: jax.Array) -> jax.Array:
        """Logits (B, L, V), float32, of final states (`states`)."""
        return self.logits(x_BLD, self.embedding if self.output is None else self.output)


def _alone(config: ModelConfig) -> ModelConfig:
    """The config of a block that follows the stack and takes over nothing from its layers."""
    last = copy.copy(config.layer_config(config.num_layers - 1))
    object.__setattr__(last, "mixer", last.mixer and last.mixer.alone())
    object.__setattr__(last, "block", last.block.alone())
    return last


def _tokens(length: int, positions_BL: jax.Array | None, *of_rows: jax.Array | None) -> Tokens:
    if positions_BL is None:
        return Tokens.first(length, *of_rows)
    tokens = Tokens.at(positions_BL, *of_rows)
    if tokens.length != length:
        raise ConfigError(f"positions: {positions_BL.shape} is not of {length} tokens")
    return tokens
