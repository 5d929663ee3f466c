"""AdamW whose learning rate, weight decay and warm-up are numbers of the replica."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from transformer.config.run import OptimizerConfig, Replica
from transformer.models.pure import Params


class Numbers(NamedTuple):
    """What may differ between the replicas of one program; float32 scalars."""

    learning_rate: Any
    weight_decay: Any
    warmup_steps: Any


def stack_numbers(config: OptimizerConfig, replicas: Sequence[Replica]) -> Numbers:
    """The numbers of all replicas, (R,) each; what a replica leaves open is the config's."""
    filled = [replica.filled(config) for replica in replicas]
    return Numbers(*(np.array([getattr(r, name) for r in filled], np.float32) for name in Numbers._fields))


def learning_rate(config: OptimizerConfig, numbers: Numbers, step: Any, total_steps: int) -> jax.Array:
    """The learning rate of the update after `step` updates."""
    return numbers.learning_rate * config.schedule(step, numbers.warmup_steps, total_steps)


def adamw(config: OptimizerConfig, total_steps: int, decayed: Params) -> optax.GradientTransformationExtraArgs:
    """AdamW with global-norm clipping, a schedule, and decay where `decayed` is True.

    `update` takes the replica's `numbers` beside the parameters. `decayed` is a tree of booleans;
    `transformer.models.pure.specs` knows which parameters are matrices.
    """

    def chain(numbers: Numbers) -> optax.GradientTransformation:
        return optax.chain(
            optax.identity() if config.clip_norm is None else optax.clip_by_global_norm(config.clip_norm),
            optax.scale_by_adam(config.beta1, config.beta2, config.eps),
            optax.add_decayed_weights(numbers.weight_decay, decayed),  # pyright: ignore[reportArgumentType]
            optax.scale_by_learning_rate(lambda step: learning_rate(config, numbers, step, total_steps)),
        )

    def init(params):
        return chain(Numbers(*(jnp.float32(0),) * 3)).init(params)

    def update(updates, state, params=None, *, numbers: Numbers, **_):
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            return chain(numbers).update(updates, state, params)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]
