"""What all models share: positions, a stack of blocks, a final norm."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import nnx

from transformer.core.devices import constrain
from transformer.core.dropout import dropout
from transformer.core.modules import Parameters, at, below
from transformer.core.names import named, scope
from transformer.core.values import ConfigError
from transformer.functional.cache import Cache, KeyValue, append, append_tokens, empty_tokens, next_tokens, places_of
from transformer.functional.masks import Causal, Full, Mask, OwnBeams, Padding, Segment, Tokens
from transformer.functional.segment_memory import Earlier, nothing_earlier
from transformer.mixers.attention.sparsity import Reach
from transformer.models.block import Block
from transformer.models.config import ModelConfig
from transformer.models.context import Carried, Context, Source, Writing
from transformer.models.stack import Stack
from transformer.norms.norm import NormLayer
from transformer.residuals.residual import Stream

NOTHING = Carried()


class Transformer(nnx.Module):
    """Vectors in, vectors out; subclasses define the embedding and the output."""

    def __init__(self, config: ModelConfig, *, max_length: int | None = None, cross: bool = False, key: jax.Array):
        self.config = config
        self.max_length = config.max_length if max_length is None else max_length
        maps = config.heads.count(config.num_heads)
        specs = config.position.parameters(config.d_model, maps, self.max_length)
        self.position = Parameters(specs, key=at(key, "position"))
        kinds = [config.layer_config(layer) for layer in range(config.pattern.period)]
        self.blocks = Stack(
            [lambda key, kind=kind: Block(kind, cross=cross, key=key) for kind in kinds],
            config.num_layers,
            config.layers,
            distinct=config.num_distinct_layers,
            carries=config.carries,
            by_depth=config.scale_init_by_depth,
            key=at(key, "blocks"),
        )
        self.resolution_params = Parameters(
            config.resolution.parameters(config.d_model), key=at(key, "resolution_params")
        )
        self.residual_params = Parameters(config.residual.shared_parameters(), key=at(key, "residual_params"))
        self.embedding_norm = NormLayer(config.first_norm, config.d_model, "embedding_norm", key=key)
        self.final_norm = NormLayer(config.last_norm, config.d_model, "final_norm", key=key)

    @property
    def span(self) -> int | None:
        """Number of tokens that some layer needs, the first (`sinks`) and the latest, the size of a ring; None: all."""
        if not self.config.resolution.whole:
            return None
        spans = [reach.span for reach in self._reaches]
        spans.append(self.config.convolution or 1)
        return None if None in spans else self.sinks + max(span for span in spans if span is not None)

    @property
    def sinks(self) -> int:
        """Number of first tokens that some layer needs for ever."""
        return max(reach.sinks for reach in self._reaches)

    @property
    def _reaches(self) -> list[Reach]:
        return [self.config.layer_config(i).reach for i in range(self.config.pattern.period)]

    def check_length(self, length: int) -> None:
        """Raise `ConfigError` where there are more tokens than positions are defined for."""
        if length > self.max_length and not self.config.position.extrapolates:
            raise ConfigError(
                f"model: {length} tokens are more than max_length {self.max_length}, and position "
                f"{self.config.position} does not extrapolate"
            )
        for choice in (self.config.heads, self.config.reach):
            if choice.longest is not None and length > choice.longest:
                raise ConfigError(f"model: {length} tokens are more than the {choice.longest} of {choice}")

    def mask_of(self, tokens: Tokens, mask: Mask | None = None) -> Mask:
        """The mask of self-attention: the model's direction, or `mask` in its place, with padding, segments and beams.

        Each layer adds the mask of its own reach.

        Raises:
          ConfigError: a mask of tokens is given, and some layers have fewer.
        """
        if mask is not None and not self.config.resolution.whole:
            raise ConfigError(f"model.resolution: {mask} is for tokens, and {self.config.resolution} has fewer")
        mask = (Causal() if self.config.causal else Full()) if mask is None else mask
        mask = mask if tokens.valid is None else mask & Padding()
        mask = mask if tokens.segments is None else mask & Segment()
        return mask if tokens.beams is None else mask & OwnBeams()

    def transform(
        self,
        x_BLD: jax.Array,
        tokens: Tokens,
        *,
        mask: Mask | None = None,
        source: Source | None = None,
        carried: Carried = NOTHING,
        key=None,
    ) -> tuple[jax.Array, jax.Array]:
        """(states (B, L, D) from embedded tokens (B, L, D), what the layers add to the loss).

        `carried` is what the first layer takes over.
        """
        context = Context(tokens, self.mask_of(tokens, mask), source=source, carried=carried)
        stream, penalty, _, _ = self._through_blocks(x_BLD, context, key=key)
        return self._end(stream, tokens.valid), penalty

    def nothing_earlier(self, batch_size: int, dtype) -> Earlier:
        """The empty memory, for the beginning of texts that are read segment by segment.

        Raises:
          ConfigError: the model keeps no memory.
        """
        if self.config.memory_length is None:
            raise ConfigError("model.memory_length is not set, so the model has no memory of earlier segments")
        return nothing_earlier(
            batch_size, self.config.num_layers, self.config.memory_length, self.config.d_model, dtype
        )

    def transform_following(
        self, x_BLD: jax.Array, earlier: Earlier, *, key=None
    ) -> tuple[jax.Array, jax.Array, Earlier]:
        """`transform` of the next segment, and the memory for the one after it."""
        length = x_BLD.shape[1]
        tokens = Tokens.at(earlier.next_position_B[:, None] + jnp.arange(length))
        slots = earlier.and_these(tokens)
        context = Context(tokens, self.mask_of(slots), slots=slots)
        states_NBMD = jnp.moveaxis(earlier.states_BNMD, 1, 0)
        stream, penalty, _, states_NBMD = self._through_blocks(x_BLD, context, earlier_NBMD=states_NBMD, key=key)
        assert states_NBMD is not None
        # Where only distances matter, positions are kept small and so exact.
        next_position_B = earlier.next_position_B + (0 if self.config.relative else length)
        after = earlier.after(tokens, jnp.moveaxis(states_NBMD, 0, 1), next_position_B)
        return self._end(stream, None), penalty, after

    def _through_blocks(
        self, x_BLD: jax.Array, context: Context, *, earlier_NBMD: jax.Array | None = None, key=None
    ) -> tuple[Stream, jax.Array, Context, jax.Array | None]:
        """(stream after the last block, penalty, context of the blocks, states for the next segment)."""
        config, tokens = self.config, context.tokens
        self.check_length(tokens.length)
        if tokens.segments is not None and config.mixes_tokens:
            raise ConfigError(
                f"model: {config.mixes_tokens} looks at all tokens of a row, and packed documents would see each "
                "other; use another, or a row for each document"
            )
        places = None
        if key is not None:
            longest = max(self.max_length, tokens.length)
            places = config.position.training_positions(longest, at(key, "positions"))
        stream = self._start(constrain(x_BLD), tokens, places)
        stream = jax.tree.map(lambda x: dropout(x, config.dropout, below(key, "embedding")), stream)
        context = context._replace(position_params=self.position(), places=places)
        own = below(key, "blocks")

        def run(stream, seen: Tokens, layers: range):
            here = context if seen is tokens else context._replace(tokens=seen, mask=self.mask_of(seen))
            return self.blocks(stream, context=here, layers=layers, earlier_NBMD=earlier_NBMD, key=own)

        how = {"causal": config.causal, "params": self.resolution_params()}
        stream, penalty, after = config.resolution(run, stream, tokens, range(config.num_layers), **how)
        return stream, penalty, context, after

    def _start(self, x_BLD: jax.Array, tokens: Tokens, places: jax.Array | None = None):
        """The stream before the first block."""
        positions_BL = tokens.positions if places is None else places[tokens.positions]
        addition = self.config.position.to_embedding(positions_BL, self.config.d_model, self.position())
        x_BLD = x_BLD if addition is None else x_BLD + addition.astype(x_BLD.dtype)
        return self.config.residual.start(self.embedding_norm(x_BLD, tokens.valid), self.config.num_layers)

    def _end(self, stream, valid_BL: jax.Array | None) -> jax.Array:
        """The states (B, L, D) from the stream after the last block."""
        states = self.config.residual.end(stream, lambda x: self.final_norm(x, valid_BL), self.residual_params())
        return named(states, "final_norm.out")

    def empty_cache(self, batch_size: int, capacity: int, ahead: int, dtype) -> Cache:
        """A cache of `capacity` slots, or of as many as the reach needs, plus the `ahead` latest that can be undone.

        Raises:
          ConfigError: the capacity is more than positions are defined for, or the model is not causal.
        """
        config = self.config
        if not config.causal:
            raise ConfigError("model: only a causal model has a cache, and this one sees later tokens")
        self.check_length(capacity)
        slots = min(capacity, (self.span or capacity) + ahead)
        layers = [_empty(config.layer_config(layer), batch_size, slots, dtype) for layer in range(config.num_layers)]
        whole = config.resolution.whole
        return Cache(
            tuple(layers) if whole else (jnp.zeros((batch_size, slots, config.d_model), dtype),),
            empty_tokens(batch_size, slots),
            None if ahead or self.is_ring(slots) or not whole else jnp.int32(0),
            jnp.zeros(batch_size, jnp.int32),
        )

    def is_ring(self, slots: int) -> bool:
        """Whether a later token may overwrite the slot of an earlier one that is out of reach."""
        return self.span is not None and slots >= self.span

    def transform_next(
        self,
        x_BLD: jax.Array,
        cache: Cache,
        *,
        valid_BL: jax.Array | None = None,
        mask: Mask | None = None,
        carried: Carried = NOTHING,
        blocks: Sequence[nnx.Module] | None = None,
    ) -> tuple[jax.Array, Cache]:
        """`transform` of the tokens after those in the cache, and the cache with them.

        `blocks` are those of the stack, where they were taken apart before, outside of a loop.
        A token past the capacity of a cache that is no ring gives NaN.
        """
        valid_BL = jnp.ones(x_BLD.shape[:2], jnp.bool) if valid_BL is None else valid_BL
        tokens = next_tokens(cache, valid_BL)
        places = places_of(tokens, cache.capacity, cache.written, self.sinks)
        ring = cache.written is None and self.is_ring(cache.capacity)
        # With more new tokens than spare slots, the last would overwrite keys that the first still attends to.
        crowded = ring and tokens.length > cache.capacity - (self.span or 0) + 1
        slots, after = append_tokens(cache.tokens, tokens, places, crowded=crowded)
        mask = self.mask_of(slots, mask)
        if self.config.resolution.whole:
            context = Context(tokens, mask, self.position(), slots=slots, carried=carried)
            write = functools.partial(Writing, new_slots=places, crowded=crowded)
            x_BLD, layers = self._next_states(x_BLD, cache, context, write, blocks)
        else:
            x_BLD, layers = self._read_again(x_BLD, cache, tokens, slots, places)
        next_position_B = jnp.where(valid_BL, tokens.positions + 1, cache.next_position_B[:, None]).max(1)
        written = None if cache.written is None else cache.written + x_BLD.shape[1]
        if not ring:
            filled = next_position_B[:, None, None] if written is None else written
            x_BLD = jnp.where(filled > cache.capacity, jnp.asarray(jnp.nan, x_BLD.dtype), x_BLD)
        return x_BLD, cache._replace(layers=layers, tokens=after, written=written, next_position_B=next_position_B)

    def _read_again(
        self, x_BLD: jax.Array, cache: Cache, tokens: Tokens, slots: Tokens, new_slots: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array]]:
        """(states of the new tokens, embedded tokens with the new ones); all tokens are read again from the first."""
        (embedded_BSD,) = cache.layers
        assert isinstance(embedded_BSD, jax.Array)
        embedded_BSD, _ = append(embedded_BSD, x_BLD, new_slots, axis=1, crowded=False)
        # A token lies in the slot of its position, but for those of beams.
        texts, valid = (embedded_BSD, slots.valid) if slots.beams is None else self._texts_of_beams(embedded_BSD, slots)
        states, _ = self.transform(texts, Tokens.at(jnp.arange(texts.shape[1]), valid=valid))
        places = jnp.minimum(tokens.positions, texts.shape[1] - 1).reshape(len(texts), -1, 1)
        return jnp.take_along_axis(states, places, 1).reshape(x_BLD.shape), (embedded_BSD,)

    def _texts_of_beams(self, embedded_BSD: jax.Array, slots: Tokens) -> tuple[jax.Array, jax.Array]:
        """Each beam's own text, (B · W, L, D), and which of its places hold a token."""
        assert slots.beams is not None
        assert slots.valid is not None
        longest = slots.length if self.config.position.extrapolates else min(slots.length, self.max_length)
        own_BWS = slots.beams & slots.valid[:, None]
        order_BWL = jnp.argsort(jnp.where(own_BWS, slots.positions[:, None], slots.length), -1)[..., :longest]
        texts_BWLD = jnp.take_along_axis(embedded_BSD[:, None], order_BWL[..., None], 2)
        valid_BWL = jnp.arange(longest) < own_BWS.sum(-1, keepdims=True)
        return rearrange(texts_BWLD, "b w l d -> (b w) l d"), rearrange(valid_BWL, "b w l -> (b w) l")

    def _next_states(
        self,
        x_BLD: jax.Array,
        cache: Cache,
        context: Context,
        write: Callable[[KeyValue], Writing],
        blocks: Sequence[nnx.Module] | None,
    ) -> tuple[jax.Array, tuple[KeyValue | None, ...]]:
        """(states of the new tokens, keys and values of each layer with theirs)."""
        stream, carried, layers = self._start(x_BLD, context.tokens), context.carried, []
        for i, block in enumerate(self.blocks if blocks is None else blocks):
            source = Source(cache.source_tokens, keys_values=cache.source[i]) if cache.source_tokens else None
            past = cache.layers[i]
            assert not isinstance(past, jax.Array)
            writing = None if past is None else write(past)
            own = context._replace(source=source, writing=writing, carried=carried, first=i == 0)
            with scope(f"blocks.{i}"):
                stream, kept = block(stream, context=own, layer=i, key=None)
            carried = kept.carried
            layers.append(past if kept.past is None else kept.past)
        return self._end(stream, context.tokens.valid), tuple(layers)


def _empty(layer: ModelConfig, batch_size: int, slots: int, dtype) -> KeyValue | None:
    """The empty slots of a layer; None where it has no keys and values of its own."""
    if not layer.carry.own_keys_values:
        return None
    sizes, heads = layer.head_sizes, layer.heads
    count = heads.kv_heads(sizes)
    size = heads.key_size(sizes) + layer.position.remembers * heads.count(sizes.num_heads) // count
    width = sum(heads.widths(sizes).values())
    return KeyValue(
        jnp.zeros((batch_size * count, size, slots), dtype),
        jnp.zeros((batch_size * count, slots, heads.value_size(sizes)), dtype),
        None if layer.convolution is None else jnp.zeros((batch_size, slots, width), dtype),
    )
