"""Decoding in one compiled program.

A model that can be decoded has three methods: `start(batch_size, capacity, ahead=…, **inputs)`, an
empty cache with whatever the model is given besides the prompt, whose latest `ahead` tokens may be
taken back; `extend(tokens, cache, valid_BL=…)`, logits and the cache after more tokens; and
`reader()`, the same prepared for a loop.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax

from transformer.config.variant import ConfigError
from transformer.inference.prompt import Generated, Prompt
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import Greedy
from transformer.models.pure import Apply, Params

GREEDY = Greedy()


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
      ConfigError: the prompt is no array (B, L), there is no token to choose or no token `stop`, prompt
        and continuation are longer than the positions have a meaning for, or a random strategy has no key.
    """
    if num_tokens < 1:
        raise ConfigError(f"generate: num_tokens {num_tokens} is not a positive number")
    if not isinstance(prompt_BL, jax.Array) or prompt_BL.ndim != 2:
        given = getattr(prompt_BL, "shape", type(prompt_BL).__name__)
        raise ConfigError(f"generate: the prompt is {given}, not an array (B, L) of tokens")
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"generate: the strategy {strategy!r} is no value such as Greedy(); texts: Strategy.parse")
    prompt = Prompt(apply, params, prompt_BL, num_tokens, stop, lengths_B, inputs or {})
    return strategy.decode(prompt, key)
