"""A transformer that continues texts: token by token with a cache, or segment by segment with a memory."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.errors import ConfigError
from transformer.functional.cache import Cache, Memory, append_tokens, empty_tokens, next_tokens, slots_of
from transformer.functional.masks import Mask, Tokens
from transformer.functional.segment_memory import SegmentMemory
from transformer.mixers.mixer import Context, Shared, Source, Writing
from transformer.models.config import ModelConfig
from transformer.models.rereading import empty_inputs, read_again
from transformer.models.transformer import NOTHING, Transformer


class Decoder(Transformer):
    """Vectors in, vectors out, with what has to be remembered of earlier ones."""

    @property
    def span(self) -> int | None:
        """Number of tokens that some layer needs, the first (`sinks`) and the latest, the size of a ring; None: all."""
        if self.config.downsampling is not None:
            return None
        spans = [sublayer.span(kind) for kind in self.config.kinds for sublayer in kind.sublayers.values()]
        return None if None in spans else self.sinks + max([1, *(span for span in spans if span is not None)])

    @property
    def sinks(self) -> int:
        """Number of first tokens that some layer needs for ever."""
        return max([0, *(mixer.first_kept for kind in self.config.kinds for mixer in kind.mixers)])

    def transform_segment(
        self, x_BLD: jax.Array, memory: SegmentMemory, *, key=None
    ) -> tuple[jax.Array, jax.Array, SegmentMemory]:
        """`transform` of the next segment, and the memory for the one after it."""
        length = x_BLD.shape[1]
        tokens = Tokens.at(memory.next_position_B[:, None] + jnp.arange(length))
        slots = memory.followed_by(tokens)
        context = Context(tokens, self.mask_of(slots), slots=slots)
        states_NBMD = jnp.moveaxis(memory.states_BNMD, 1, 0)
        stream, penalty, _, states_NBMD = self.through_blocks(x_BLD, context, earlier_NBMD=states_NBMD, key=key)
        assert states_NBMD is not None
        # Where only distances matter, positions are kept small and so exact.
        next_position_B = memory.next_position_B + (0 if self.config.relative else length)
        after = memory.after(tokens, jnp.moveaxis(states_NBMD, 0, 1), next_position_B)
        return self.states_of(stream, None), penalty, after

    def empty_cache(self, batch_size: int, capacity: int, ahead: int, dtype) -> Cache:
        """An empty cache of min(capacity, span + ahead) slots, of which the `ahead` latest can be rewound.

        Raises:
          ConfigError: the capacity is more than positions are defined for, the model is not causal, or one of its
            mixers cannot undo tokens.
        """
        config = self.config
        if not config.causal:
            raise ConfigError("model: only a causal model has a cache, and this one sees later tokens")
        self.check_length(capacity)
        slots = min(capacity, (self.span or capacity) + ahead)
        whole = config.downsampling is None
        if whole:
            views = [config.layer_config(layer) for layer in range(config.num_layers)]
            layers = tuple(_remembered(view, batch_size, slots, dtype, ahead) for view in views)
        else:
            layers = empty_inputs(batch_size, slots, config.d_model, dtype)
        return Cache(
            layers,
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
        shared: Shared = NOTHING,
        blocks: Sequence[nnx.Module] | None = None,
    ) -> tuple[jax.Array, Cache]:
        """`transform` of the tokens after those in the cache, and the cache with them.

        `blocks` are those of the stack, where they were taken apart before, outside of a loop.
        A token past the capacity of a cache that is no ring gives NaN.
        """
        valid_BL = jnp.ones(x_BLD.shape[:2], jnp.bool) if valid_BL is None else valid_BL
        tokens = next_tokens(cache, valid_BL)
        new_slots = slots_of(tokens, cache.capacity, cache.written, self.sinks)
        ring = cache.written is None and self.is_ring(cache.capacity)
        # With more new tokens than spare slots, the last would overwrite keys that the first still attends to.
        crowded = ring and tokens.length > cache.capacity - (self.span or 0) + 1
        slots, after = append_tokens(cache.tokens, tokens, new_slots, crowded=crowded)
        mask = self.mask_of(slots, mask)
        if self.config.downsampling is None:
            context = self.with_position(Context(tokens, mask, slots=slots, shared=shared))
            write = functools.partial(Writing, new_slots=new_slots, crowded=crowded)
            x_BLD, layers = self._next_states(x_BLD, cache, context, write, blocks)
        else:
            x_BLD, layers = read_again(self, x_BLD, cache, tokens, slots, new_slots)
        next_position_B = jnp.where(valid_BL, tokens.positions + 1, cache.next_position_B[:, None]).max(1)
        written = None if cache.written is None else cache.written + x_BLD.shape[1]
        if not ring:
            filled = next_position_B[:, None, None] if written is None else written
            x_BLD = jnp.where(filled > cache.capacity, jnp.asarray(jnp.nan, x_BLD.dtype), x_BLD)
        return x_BLD, cache._replace(layers=layers, tokens=after, written=written, next_position_B=next_position_B)

    def _next_states(
        self,
        x_BLD: jax.Array,
        cache: Cache,
        context: Context,
        write: Callable[[dict[str, Memory]], Writing],
        blocks: Sequence[nnx.Module] | None,
    ) -> tuple[jax.Array, tuple[dict[str, Memory], ...]]:
        """(states of the new tokens, the memories of each layer with them)."""
        stream, shared, layers = self.stream_of(x_BLD, context), context.shared, []
        for i, block in enumerate(self.blocks if blocks is None else blocks):
            source = Source(cache.source_tokens, keys_values=cache.source[i]) if cache.source_tokens else None
            own = context._replace(source=source, writing=write(cache.layers[i]), shared=shared, first=i == 0)
            with jax.named_scope(f"blocks.{i}"):
                stream, aux = block(stream, context=own, layer=i, key=None)
            shared = self.blocks.handed_on(aux.shared)
            layers.append(aux.memory)
        return self.states_of(stream, context.tokens.valid), tuple(layers)


def _remembered(view: ModelConfig, batch_size: int, slots: int, dtype, ahead: int) -> dict[str, Memory]:
    """The empty memories of a layer.

    Raises:
      ConfigError: the latest `ahead` tokens are to be undone, and a mixer keeps no slot for each token.
    """
    sublayers = view.sublayers
    memories = {name: sublayer.memory(view, batch_size, slots, dtype) for name, sublayer in sublayers.items()}
    for name, memory in memories.items():
        if ahead and memory is not None and not memory.can_rewind:
            own = sublayers[name]
            raise ConfigError(f"model.mixer: {own} keeps one state, so that no token of a cache can be undone")
    return {name: memory for name, memory in memories.items() if memory is not None}
