"""Cross-entropy over a vocabulary."""

import jax
import jax.numpy as jnp


def cross_entropy(
    logits: jax.Array, labels: jax.Array, *, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> jax.Array:
    """-log softmax(logits)[label] for each label, (...) float32, in nats.

    The caller divides the *sum* by the number of real tokens of the whole batch, so that neither
    padding nor the way a batch is cut into pieces changes the gradient.

    Args:
      logits: (..., V), any float dtype.
      labels: (...) integers in [0, V).
      label_smoothing: the share of the target that is spread evenly over the vocabulary
        (Szegedy et al. 2016, section 7).
      z_loss: coefficient of log²Z, which is added; Z is the softmax normalizer
        (Chowdhery et al. 2022, section 5).
    """
    logits = logits.astype(jnp.float32)
    highest = jax.lax.stop_gradient(logits.max(-1, keepdims=True))
    shifted = logits - highest
    log_normalizer = jnp.log(jnp.exp(shifted).sum(-1))
    target = jnp.take_along_axis(shifted, labels[..., None], -1)[..., 0]
    if label_smoothing:
        target = (1 - label_smoothing) * target + label_smoothing * shifted.mean(-1)
    loss = log_normalizer - target
    return loss + z_loss * jnp.square(log_normalizer + highest[..., 0]) if z_loss else loss
