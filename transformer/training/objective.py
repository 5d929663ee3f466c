"""What is minimized: sums over tokens, so that the caller alone decides what to divide by."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer.functional.losses import cross_entropy
from transformer.models.pure import Apply, Params

Batch = dict[str, jax.Array]


class Sums(NamedTuple):
    """Sums over the tokens of a batch, float32."""

    loss: jax.Array
    """(L,) nats at each position, summed over sequences."""
    weight: jax.Array
    """(L,) number of real labels at each position."""


Objective = Callable[[Apply, Params, Batch, jax.Array | None], Sums]


def next_token(label_smoothing: float = 0.0, z_loss: float = 0.0) -> Objective:
    """Cross-entropy of each token given those before it.

    The batch holds `tokens` (B, L + 1) and may hold `weights` (B, L), 0 where a label is not real.
    A key turns dropout on.
    """

    def objective(apply: Apply, params: Params, batch: Batch, key: jax.Array | None) -> Sums:
        inputs, labels = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
        weights = batch.get("weights", jnp.ones(labels.shape, jnp.float32))
        losses_BL = cross_entropy(
            apply(params, inputs, key=key), labels, label_smoothing=label_smoothing, z_loss=z_loss
        )
        return Sums((losses_BL * weights).sum(0), weights.sum(0))

    return objective
