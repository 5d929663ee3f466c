"""What decoding starts from and what it returns."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.functional.cache import Cache
from transformer.models.pure import Apply, Params


class Prompt(NamedTuple):
    """What a model reads before it chooses."""

    tokens_BL: jax.Array
    lengths_B: jax.Array | None
    """None: all of them are as long as the array."""
    inputs: Mapping[str, Any]
    """Further arguments of the model's `start`."""


class Generated(NamedTuple):
    """Continuations."""

    tokens_BT: jax.Array
    """(B, T) int32; 0 behind the end of a sequence."""
    lengths_B: jax.Array
    """Tokens of each, the end token included."""
    log_probability_B: jax.Array
    """log P of each continuation given its prompt, in nats; the end token included."""


def read_prompt(apply: Apply, params: Params, prompt: Prompt, num_tokens: int) -> tuple[jax.Array, Cache]:
    """Logits (B, V) of the token after each prompt, and the cache with room for `num_tokens` more."""
    tokens_BL = prompt.tokens_BL
    B, L = tokens_BL.shape
    # The last token chosen is never read, so it needs no slot.
    cache = apply(params, B, L + num_tokens - 1, method="start", **prompt.inputs)
    if prompt.lengths_B is None:
        logits_BLV, cache = apply(params, tokens_BL, cache, method="extend")
        return logits_BLV[:, -1], cache
    valid_BL = jnp.arange(L) < prompt.lengths_B[:, None]
    logits_BLV, cache = apply(params, tokens_BL, cache, method="extend", valid_BL=valid_BL)
    return jnp.take_along_axis(logits_BLV, prompt.lengths_B[:, None, None] - 1, 1)[:, 0], cache
