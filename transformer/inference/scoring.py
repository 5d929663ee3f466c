"""The exact probability of given sequences."""

import jax
import jax.numpy as jnp

from transformer.models.pure import Apply, Params


def sequence_log_probability(
    apply: Apply, params: Params, tokens_BL: jax.Array, *inputs: jax.Array, weights_BL: jax.Array | None = None, **more
) -> jax.Array:
    """(B,) log P of tokens 1 … L-1 given the first, in nats: Σ_t log p(x_t | x_<t), the chain rule.

    Args:
      apply: a pure causal model.
      params: its parameters.
      tokens_BL: (B, L) sequences; of an encoder-decoder the targets, from the start token.
      inputs: what the model takes before the tokens: the sources.
      weights_BL: (B, L - 1), 0 for labels that do not count, such as padding.
      more: keyword arguments of the model.
    """
    logits_BLV = apply(params, *inputs, tokens_BL[:, :-1], **more)
    log_probabilities = jax.nn.log_softmax(logits_BLV)
    chosen_BL = jnp.take_along_axis(log_probabilities, tokens_BL[:, 1:, None], -1)[..., 0]
    return (chosen_BL if weights_BL is None else chosen_BL * weights_BL).sum(-1)
