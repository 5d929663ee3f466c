"""How a decoder that shortens its sequence goes on: it remembers embedded tokens, and reads all of them again."""

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.functional.cache import Cache, Inputs, Memory, append
from transformer.functional.masks import Tokens
from transformer.models.transformer import Transformer

EMBEDDED = "embedded"
"""The name of the memory, which is the only one."""

Memories = tuple[dict[str, Memory], ...]


def empty_inputs(batch_size: int, slots: int, d_model: int, dtype) -> Memories:
    """The memory without tokens."""
    return ({EMBEDDED: Inputs(jnp.zeros((batch_size, slots, d_model), dtype))},)


def read_again(
    model: Transformer, x_BLD: jax.Array, cache: Cache, tokens: Tokens, slots: Tokens, new_slots: jax.Array
) -> tuple[jax.Array, Memories]:
    """(states (B, L, D) of the new embedded tokens, the memory with them); all are read from the first on."""
    inputs = cache.layers[0][EMBEDDED]
    assert isinstance(inputs, Inputs)
    embedded_BSD, _ = append(inputs.inputs_BSX, x_BLD, new_slots, axis=1, crowded=False)
    # A token lies in the slot of its position, but for those of beams.
    of_beams = slots.beams is not None
    texts, valid = _texts_of_beams(model, embedded_BSD, slots) if of_beams else (embedded_BSD, slots.valid)
    states, _ = model.transform(texts, Tokens.first(texts.shape[1], valid=valid))
    index = jnp.minimum(tokens.positions, texts.shape[1] - 1).reshape(len(texts), -1, 1)
    return jnp.take_along_axis(states, index, 1).reshape(x_BLD.shape), ({EMBEDDED: Inputs(embedded_BSD)},)


def _texts_of_beams(model: Transformer, embedded_BSD: jax.Array, slots: Tokens) -> tuple[jax.Array, jax.Array]:
    """Each beam's own text, (B · W, L, D), and which of its places hold a token."""
    assert slots.beams is not None
    assert slots.valid is not None
    position = model.config.position
    anywhere = position is None or position.extrapolates
    longest = slots.length if anywhere else min(slots.length, model.max_length)
    own_BWS = slots.beams & slots.valid[:, None]
    order_BWL = jnp.argsort(jnp.where(own_BWS, slots.positions[:, None], slots.length), -1)[..., :longest]
    texts_BWLD = jnp.take_along_axis(embedded_BSD[:, None], order_BWL[..., None], 2)
    valid_BWL = jnp.arange(longest) < own_BWS.sum(-1, keepdims=True)
    return rearrange(texts_BWLD, "b w l d -> (b w) l d"), rearrange(valid_BWL, "b w l -> (b w) l")
