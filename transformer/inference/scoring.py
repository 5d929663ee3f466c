"""The exact probability of given sequences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer.core.arrays import check_ids, check_tokens
from transformer.core.checks import is_count
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params


def label_log_probabilities(logits_BLV: jax.Array, labels_BL: jax.Array) -> jax.Array:
    """(B, L) log p of each label, in nats; any number of axes before V."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits_BLV), labels_BL[..., None], -1)[..., 0]


def sequence_log_probability(
    apply: Apply, params: Params, tokens_BL: jax.Array, *inputs: jax.Array, weights_BL: jax.Array | None = None, **more
) -> jax.Array:
    """(B,) log P of tokens 1 … L-1 given the first, in nats: Σ_t log p(x_t | x_<t), the chain rule.

    In a compiled program NaN for ids outside of the vocabulary.

    Args:
      apply: a pure causal model.
      params: its parameters.
      tokens_BL: (B, L) sequences; for an encoder-decoder the targets, from the start token on.
      inputs: what the model takes before the tokens, such as the sources.
      weights_BL: (B, L - 1), 0 for labels that do not count, such as padding; None: all count.
      more: keyword arguments of the model.

    Raises:
      ConfigError: called eagerly, with an id outside of the vocabulary.
    """
    check_tokens(tokens_BL, None)
    logits_BLV = apply(params, *inputs, tokens_BL[:, :-1], **more)
    check_ids(tokens_BL, logits_BLV.shape[-1], "sequence_log_probability: token")
    chosen_BL = label_log_probabilities(logits_BLV, tokens_BL[:, 1:])
    if weights_BL is not None and weights_BL.shape != chosen_BL.shape:
        raise ConfigError(f"sequence_log_probability: weights {weights_BL.shape} for labels {chosen_BL.shape}")
    return (chosen_BL if weights_BL is None else chosen_BL * weights_BL).sum(-1)


@functools.partial(jax.jit, static_argnames=("apply", "window", "stride", "batch_size"))
def sliding_log_probabilities(
    apply: Apply, params: Params, tokens_L: jax.Array, *, window: int, stride: int, batch_size: int = 32
) -> jax.Array:
    """(L - 1,) log p of each token but the first given those before it in its window, in nats.

    Every token is a label once (Press et al. 2021, appendix B): in the first window all are, and in each later
    one, `stride` tokens on, the last `stride`, which have at least `window` - `stride` + 1 tokens before
    them. With a stride of `window` the windows do not overlap. exp(-mean) is the perplexity. NaN for ids
    outside of the vocabulary.

    Args:
      apply: a pure causal model.
      params: its parameters.
      tokens_L: (L,), at least two.
      window: tokens that the model reads at once, such as its `max_length`.
      stride: tokens from the start of one window to the next.
      batch_size: windows per batch.

    Raises:
      ConfigError: the stride is not in [1, window], or there is nothing to predict.
    """
    for name, number in (("window", window), ("stride", stride), ("batch_size", batch_size)):
        if not is_count(number) or number < 1:
            raise ConfigError(f"sliding_log_probabilities: {name} {number!r} is not a positive number")
    if jnp.ndim(tokens_L) != 1:
        raise ConfigError(f"sliding_log_probabilities: tokens {jnp.shape(tokens_L)} are not one sequence (L,)")
    if not 1 <= stride <= window:
        raise ConfigError(f"sliding_log_probabilities: stride {stride} is not in [1, {window}], the window")
    if (labels := len(tokens_L) - 1) < 1:
        raise ConfigError(f"sliding_log_probabilities: {labels + 1} tokens leave nothing to predict")
    windows = 1 + max(0, -(-(labels - window) // stride))
    starts = np.arange(-(-windows // batch_size) * batch_size) * stride
    # Padding of the last window or batch comes after all real tokens and is cut off at the end.
    padded = jnp.pad(tokens_L, (0, int(starts[-1]) + window + 1 - len(tokens_L)))

    def read(starts_B):
        tokens_BW = padded[starts_B[:, None] + jnp.arange(window + 1)]
        return label_log_probabilities(apply(params, tokens_BW[:, :-1]), tokens_BW[:, 1:])

    logs = lax.map(read, starts.reshape(-1, batch_size)).reshape(-1, window)
    return jnp.concatenate([logs[0], logs[1:, window - stride :].reshape(-1)])[:labels]
