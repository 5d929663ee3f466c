"""Continue a prompt token by token, in one compiled program."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from transformer.models.pure import Apply, Params


@functools.partial(jax.jit, static_argnames=("apply", "num_tokens", "window"))
def sample(
    apply: Apply,
    params: Params,
    prompt_BL: jax.Array,
    key: jax.Array,
    *,
    num_tokens: int,
    window: int,
    temperature: float = 1.0,
) -> jax.Array:
    """(B, num_tokens) tokens, each drawn from softmax(logits / temperature) given the last `window` tokens.

    Args:
      apply: the pure language model.
      params: its parameters.
      prompt_BL: (B, L) int32, L at least 1; its last `window` tokens are read.
      key: of the draws.
      num_tokens: how many to draw.
      window: the longest context the model is given, usually its `max_length`.
      temperature: above 0; towards 0 the most likely token.
    """
    prompt_BL = prompt_BL[:, -window:]
    length = prompt_BL.shape[1]
    context_BW = jnp.pad(prompt_BL, ((0, 0), (0, window - length)))

    def step(carry, key):
        context_BW, length = carry
        # Tokens to the right of the last one are not seen: the model is causal.
        logits_BV = apply(params, context_BW)[:, length - 1]
        token_B = jax.random.categorical(key, logits_BV / temperature).astype(jnp.int32)
        full = length == window
        context_BW = jnp.where(full, jnp.roll(context_BW, -1, 1), context_BW)
        place = jnp.where(full, window - 1, length)
        return (context_BW.at[:, place].set(token_B), place + 1), token_B

    start = (context_BW, jnp.int32(length))
    return lax.scan(step, start, jax.random.split(key, num_tokens))[1].T
