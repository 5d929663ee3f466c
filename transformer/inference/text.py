"""Tokens beyond the length a model was built for: continued in windows, and scored in windows."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.checks import check_type
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params
from transformer.inference.generate import generate
from transformer.inference.processors import Earlier
from transformer.inference.scoring import sliding_log_probabilities
from transformer.inference.strategies import Strategy, check_decoding, check_length

Beyond = Literal["slide", "extrapolate", "refuse"]
"""What to do where prompt and continuation are longer than `max_length`, the longest text of training."""


def continuation(
    apply: Apply,
    params: Params,
    max_length: int,
    prompt_L: np.ndarray,
    *,
    num_tokens: int,
    strategy: Strategy,
    key: jax.Array,
    stop: int | None = None,
    prefix: bool = False,
    beyond: Beyond = "slide",
) -> np.ndarray:
    """The tokens that follow a prompt, (T,) int32, T at most `num_tokens`, less where `stop` ends them.

    Past `max_length` "slide" chooses half of it at a time, and reads the last tokens before these again each time;
    the first window goes on for as long as all of the text fits;
    "extrapolate" reads on, which few models do well that were not trained on longer texts; "refuse" raises an error.

    Args:
      apply: a pure causal language model.
      params: its parameters.
      max_length: of the texts of its training.
      prompt_L: (L,) tokens, L at least 1.
      num_tokens: the largest number of tokens to choose.
      strategy: how they are chosen; a beam is one in each window.
      key: for random strategies.
      stop: the token that ends the text, and is its last one.
      prefix: whether the tokens of the prompt see each other; of a later window those that are read again.
      beyond: what to do past `max_length`.

    Raises:
      ConfigError: as `generate`, `beyond` is no such word, or the text is longer than it allows.
    """
    check_type(beyond, Beyond, "generate: beyond")
    check_decoding("generate", num_tokens, stop, strategy, key, None)
    check_length("generate", strategy, num_tokens)
    tokens, end = np.asarray(prompt_L), len(prompt_L) + num_tokens
    longer = end - 1 > max_length
    if longer and beyond == "refuse":
        raise ConfigError(f"generate: {end - 1} tokens are read, more than max_length {max_length}; use slide")
    slides = longer and beyond == "slide"
    while (missing := end - len(tokens)) > 0:
        fitting = max_length - len(tokens) + 1
        later = fitting if fitting > 0 else max(1, max_length // 2)
        room = later if slides else missing
        read_L = tokens[-(max_length - room + 1) :] if slides else tokens
        key, draw = jax.random.split(key)
        how = {"num_tokens": room, "strategy": strategy, "stop": stop, "prefix": prefix, "key": draw}
        if slides and strategy.processors:
            how["earlier"] = _earlier(tokens, len(tokens) - len(read_L), len(tokens) - len(prompt_L), end)
        made = generate(apply, params, jnp.asarray(read_L[None]), **how)
        new_T = np.asarray(made.tokens_BT[0, : min(int(made.lengths_B[0]), missing)])
        tokens = np.concatenate([tokens, new_T])
        if stop is not None and new_T[-1] == stop:
            break
    return tokens[len(prompt_L) :]


def _earlier(tokens_L: np.ndarray, unread: int, chosen: int, end: int) -> Earlier:
    """The first `unread` tokens, as one row whose size is that of the whole text at its end."""
    row_1S = np.zeros((1, end), np.int32)
    row_1S[0, :unread] = tokens_L[:unread]
    return Earlier(jnp.asarray(row_1S), jnp.full(1, unread, jnp.int32), jnp.full(1, chosen, jnp.int32))


def token_log_probabilities(apply: Apply, params: Params, max_length: int, tokens_L: np.ndarray) -> np.ndarray:
    """(L - 1,) log p of each token but the first given those before it, in nats.

    Tokens past `max_length` are read in windows of that many, half of it apart, so that each has at least half of it
    before it.

    Raises:
      ConfigError: there are fewer than two tokens.
    """
    labels = len(tokens_L) - 1
    window = max(min(labels, max_length), 1)
    return np.asarray(
        sliding_log_probabilities(
            apply,
            params,
            jnp.asarray(tokens_L),
            window=window,
            stride=max(1, window // 2),
            batch_size=1 if labels <= window else 32,
        )
    )
