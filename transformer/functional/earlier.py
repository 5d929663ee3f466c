"""What is kept of the segments before, where a text is read segment by segment (Dai et al. 2019, section 3.2).

Each layer attends to what attention read in it for the tokens before the segment, and no gradient goes there.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer.functional.masks import Tokens


class Earlier(NamedTuple):
    """Of the latest M tokens of each sequence of a batch."""

    states_BNMD: jax.Array
    """What attention read in each of N layers."""
    valid_BM: jax.Array
    """False where there was no token."""
    next_position_B: jax.Array
    """Position of the token that comes next, int32."""

    @property
    def length(self) -> int:
        return self.valid_BM.shape[1]

    def and_these(self, tokens: Tokens) -> Tokens:
        """The earlier tokens, and behind them those of the segment: (B, M + L)."""
        before_BM = self.next_position_B[:, None] + jnp.arange(-self.length, 0)
        positions_BL = jnp.broadcast_to(tokens.positions, (len(before_BM), tokens.length))
        valid_BL = jnp.ones(positions_BL.shape, jnp.bool) if tokens.valid is None else tokens.valid
        return Tokens.at(
            jnp.concatenate([before_BM, positions_BL], 1), valid=jnp.concatenate([self.valid_BM, valid_BL], 1)
        )

    def after(self, tokens: Tokens, states_BNMD: jax.Array, next_position_B: jax.Array) -> "Earlier":
        """What is earlier behind the segment."""
        seen = self.and_these(tokens)
        assert seen.valid is not None
        return Earlier(states_BNMD, seen.valid[:, -self.length :], next_position_B)


def nothing_earlier(batch_size: int, num_layers: int, length: int, d_model: int, dtype) -> Earlier:
    """At the beginning of texts."""
    return Earlier(
        jnp.zeros((batch_size, num_layers, length, d_model), dtype),
        jnp.zeros((batch_size, length), jnp.bool),
        jnp.zeros(batch_size, jnp.int32),
    )


def latest(x_BSD: jax.Array, length: int) -> jax.Array:
    """(B, length, D) of the last tokens, as the next segment sees them: without a gradient."""
    return lax.stop_gradient(x_BSD[:, -length:])
