"""The memory of Transformer-XL, which reads a text segment by segment (Dai et al. 2019, section 3.2).

In each layer a segment also attends to the inputs that attention had for the tokens before it, without a gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer.functional.masks import Tokens


class SegmentMemory(NamedTuple):
    """Transformer-XL memory: what each layer's attention read for the latest M tokens of each sequence."""

    states_BNMD: jax.Array
    """Input of attention in each of N layers."""
    valid_BM: jax.Array
    """False where there was no token."""
    next_position_B: jax.Array
    """Position of the token that comes next, int32."""

    @property
    def length(self) -> int:
        """Number of tokens of the memory, M."""
        return self.valid_BM.shape[1]

    def followed_by(self, tokens: Tokens) -> Tokens:
        """The tokens of the memory followed by those of the segment, (B, M + L)."""
        before_BM = self.next_position_B[:, None] + jnp.arange(-self.length, 0)
        positions_BL = jnp.broadcast_to(tokens.positions, (len(before_BM), tokens.length))
        valid_BL = jnp.ones(positions_BL.shape, jnp.bool) if tokens.valid is None else tokens.valid
        return Tokens.at(
            jnp.concatenate([before_BM, positions_BL], 1), valid=jnp.concatenate([self.valid_BM, valid_BL], 1)
        )

    def after(self, tokens: Tokens, states_BNMD: jax.Array, next_position_B: jax.Array) -> "SegmentMemory":
        """The memory to pass with the next segment."""
        seen = self.followed_by(tokens)
        assert seen.valid is not None
        return SegmentMemory(states_BNMD, seen.valid[:, -self.length :], next_position_B)


def empty_segment_memory(batch_size: int, num_layers: int, length: int, d_model: int, dtype) -> SegmentMemory:
    """The empty memory, with which texts begin."""
    return SegmentMemory(
        jnp.zeros((batch_size, num_layers, length, d_model), dtype),
        jnp.zeros((batch_size, length), jnp.bool),
        jnp.zeros(batch_size, jnp.int32),
    )


def latest(x_BSD: jax.Array, length: int) -> jax.Array:
    """The states of the last tokens, (B, length, D), without a gradient, as the next segment sees them."""
    return lax.stop_gradient(x_BSD[:, -length:])
