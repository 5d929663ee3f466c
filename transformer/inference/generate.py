"""Decoding in one compiled program: a state, a condition, and a step.

A model that can be decoded has three methods: `start(batch_size, capacity, **inputs)`, an empty cache
with whatever the model is given besides the prompt; `extend(tokens, cache, valid_BL=…)`, logits and
the cache after more tokens; and `reader()`, the same prepared for a loop.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer.config.variant import ConfigError
from transformer.functional.cache import Cache
from transformer.inference.beam import beam_search
from transformer.inference.results import Generated, Prompt, read_prompt
from transformer.inference.strategies import Beam, Greedy, Strategy, TokenStrategy
from transformer.models.pure import Apply, Params

GREEDY = Greedy()


class DecodingState(NamedTuple):
    """Where decoding is."""

    step: jax.Array
    """Tokens chosen so far, int32."""
    logits_BV: jax.Array
    """Of the next token."""
    cache: Cache
    tokens_BT: jax.Array
    """The chosen tokens; 0 where none is."""
    log_probability_B: jax.Array
    """Of the chosen tokens under the model, whatever the strategy."""
    lengths_B: jax.Array
    """Tokens of each sequence, the end token included."""
    finished_B: jax.Array


@functools.partial(jax.jit, static_argnames=("apply", "num_tokens", "strategy", "stop"))
def generate(
    apply: Apply,
    params: Params,
    prompt_BL: jax.Array,
    *,
    num_tokens: int,
    strategy: Strategy = GREEDY,
    stop: int | None = None,
    lengths_B: jax.Array | None = None,
    inputs: Mapping[str, Any] | None = None,
    key: jax.Array | None = None,
) -> Generated:
    """Continue prompts by up to `num_tokens` tokens, with a cache.

    Args:
      apply: the pure model, `transformer.split(model)[1]`.
      params: its parameters.
      prompt_BL: (B, L) int32, L at least 1; of an encoder-decoder the start token.
      num_tokens: the most tokens to choose.
      strategy: `Greedy()`, `Sample(…)` or `Beam(…)`.
      stop: the token that ends a sequence; 0 fills up behind it.
      lengths_B: (B,) length of each prompt, where they are padded on the right.
      inputs: what else the model starts from: `source_BS` and `source_valid_BS` of an encoder-decoder.
      key: of random strategies.

    Raises:
      ConfigError: prompt and continuation are longer than the positions have a meaning for, or a
        random strategy has no key.
    """
    prompt = Prompt(prompt_BL, lengths_B, inputs or {})
    if isinstance(strategy, Beam):
        return beam_search(apply, params, prompt, num_tokens=num_tokens, strategy=strategy, stop=stop)
    assert isinstance(strategy, TokenStrategy)
    if key is None:
        if strategy != Greedy():
            raise ConfigError(f"generate: {strategy} is random and needs a key")
        key = jax.random.key(0)
    logits_BV, cache = read_prompt(apply, params, prompt, num_tokens)
    read = apply(params, method="reader")
    B = len(prompt_BL)
    start = DecodingState(
        jnp.int32(0),
        logits_BV,
        cache,
        jnp.zeros((B, num_tokens), jnp.int32),
        jnp.zeros(B),
        jnp.zeros(B, jnp.int32),
        jnp.zeros(B, jnp.bool),
    )

    def go_on(state: DecodingState) -> jax.Array:
        return (state.step < num_tokens) & ~state.finished_B.all()

    def step(state: DecodingState) -> DecodingState:
        token_B = strategy(state.logits_BV, jax.random.fold_in(key, state.step))
        token_B = jnp.where(state.finished_B, 0, token_B)
        log_probabilities_BV = jax.nn.log_softmax(state.logits_BV)
        chosen_B = jnp.take_along_axis(log_probabilities_BV, token_B[:, None], 1)[:, 0]
        running_B = ~state.finished_B
        finished_B = state.finished_B if stop is None else state.finished_B | (token_B == stop)
        logits_BLV, cache = read(token_B[:, None], state.cache)
        return DecodingState(
            state.step + 1,
            logits_BLV[:, 0],
            cache,
            lax.dynamic_update_slice_in_dim(state.tokens_BT, token_B[:, None], state.step, 1),
            state.log_probability_B + jnp.where(running_B, chosen_B, 0.0),
            state.lengths_B + running_B.astype(jnp.int32),
            finished_B,
        )

    end = lax.while_loop(go_on, step, start)
    return Generated(end.tokens_BT, end.lengths_B, end.log_probability_B)
