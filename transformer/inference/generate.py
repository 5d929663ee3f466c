"""Decoding in one compiled program.

A model that can be decoded has four methods: `vocabularies()` returns how many tokens the `prompt` may have, and the
inputs by name; `start(batch_size, capacity, ahead=…, **inputs)` returns an empty cache with whatever the model is given
besides the prompt, whose latest `ahead` tokens can be undone; `extend(tokens, cache, valid_BL=…, mask=…)` returns
logits and the cache after more tokens; and `reader()` returns `extend` prepared for a loop.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from transformer.core.modules import Apply, Params
from transformer.core.sources import code_of
from transformer.inference.parts import in_parts
from transformer.inference.processors import Earlier
from transformer.inference.prompt import Generated, Prompt, check_prompt
from transformer.inference.strategies import Strategy, check_decoding, check_length
from transformer.inference.tokenwise import GREEDY


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
    prefix: bool = False,
    earlier: Earlier | None = None,
    key: jax.Array | None = None,
    mesh: Mesh | None = None,
) -> Generated:
    """Continue prompts by up to `num_tokens` tokens, with a cache.

    Args:
      apply: the pure model, `transformer.split(model)[1]`; another `apply` or `strategy` compiles again.
      params: its parameters.
      prompt_BL: (B, L) int32 in [0, V), L at least 1; for an encoder-decoder the start token.
      num_tokens: the largest number of tokens to choose.
      strategy: `Greedy()`, `Sample(…)` or `Beam(…)`.
      stop: the token that ends a sequence; 0 fills up the row after it.
      lengths_B: (B,) length of each prompt, where prompts are padded on the right.
      inputs: further inputs of the model: `source_BS` and `source_valid_BS` for an encoder-decoder.
      prefix: whether all tokens of a prompt see each other, as in a model trained with `prefix_token`.
      earlier: text before the prompts that the model does not read, for processors of the strategy, such as
        `no_repeat`; None: there is none.
      key: required by random strategies.
      mesh: devices that continue an equal part of the sequences each, such as `jax.make_mesh((8,), ("data",))`;
        nothing passes between them, and each draws random numbers of its own. None: one device.

    Raises:
      ConfigError: the prompt is not an array (B, L) of tokens that the model has, `num_tokens` is not positive, the
        model has no token `stop`, prompt and continuation are longer than positions are defined for, a random strategy
        has no key, the strategy or a processor does not fit the vocabulary or `num_tokens`, or the sequences cannot
        be divided by the devices.
    """
    check_decoding("generate", num_tokens, stop, strategy, key, mesh)
    if earlier is None:  # of a longer text this is a part, whose length says nothing
        check_length("generate", strategy, num_tokens)
    check_prompt("generate", apply, params, prompt_BL, lengths_B, inputs or {}, stop)
    chosen = {"num_tokens": num_tokens, "strategy": strategy, "stop": stop, "prefix": prefix, "mesh": mesh}
    chosen |= {"code": code_of(strategy)}
    return _generate(apply, params, (prompt_BL, lengths_B, inputs or {}, earlier), key, **chosen)


@functools.partial(jax.jit, static_argnames=("apply", "num_tokens", "strategy", "stop", "prefix", "mesh", "code"))
def _generate(apply, params, sequences, key, *, num_tokens, strategy, stop, prefix, mesh, code) -> Generated:
    """The program; another one where a strategy of one's own has other code."""

    def decode(params, sequences, key) -> Generated:
        prompt_BL, lengths_B, inputs, earlier = sequences
        prompt = Prompt(apply, params, prompt_BL, num_tokens, stop, lengths_B, inputs, prefix, earlier)
        return strategy.decode(prompt, key)

    return in_parts(decode, mesh, params, sequences, key)
