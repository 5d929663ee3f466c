"""The next token's loss without the logits of all tokens at once, which large vocabularies make the largest array."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from einops import rearrange
from jax import lax

from transformer.core.checks import check_positive
from transformer.objectives.objective import NextToken, Sums, packing_of


@dataclass(frozen=True)
class ChunkedNextToken(NextToken):
    """`next_token`, whose logits are computed for a part of the tokens at a time, and again for the gradient.

    It takes one more product with the output table, and B · `chunk` · V numbers in place of B · L · V.
    """

    name = "chunked_next_token"
    chunk: int = 256
    """Most tokens of a sequence whose logits are there at once."""

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "chunk")

    @property
    def judged_as(self):
        return NextToken(auxiliary=0.0) if type(self) is ChunkedNextToken else self.plain()

    def __call__(self, apply, params, batch, key):
        inputs, more = batch["tokens"][:, :-1], packing_of(batch)
        states_BLD, penalty = self.answer(apply, params, inputs, method="states", key=key, **more)

        def of_chunk(chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            states_BCD, labels_BC = chunk
            logits_BCV = apply(params, states_BCD, method="read_out")
            return self.losses(logits_BCV, labels_BC), (logits_BCV.argmax(-1) == labels_BC).astype(jnp.float32)

        losses_BL, hits_BL = _over_chunks(jax.checkpoint(of_chunk), (states_BLD, self.labels(batch)), self.chunk)
        return Sums.of(losses_BL + penalty, self.weights(batch), hits_BL)


def _over_chunks(of_chunk: Callable, arrays: tuple[jax.Array, ...], chunk: int) -> tuple[jax.Array, ...]:
    """`of_chunk` of at most `chunk` positions at a time of arrays (B, L, …), its outputs (B, L) put together.

    A chunk has every n-th position, so that devices which share a sequence have a part of every chunk.
    """
    length = arrays[0].shape[1]
    count = -(-length // chunk)
    whole = [jnp.pad(a, [(0, 0), (0, -length % count)] + [(0, 0)] * (a.ndim - 2)) for a in arrays]
    outputs = lax.map(of_chunk, tuple(rearrange(a, "b (c n) ... -> n b c ...", n=count) for a in whole))
    return tuple(rearrange(a, "n b c -> b (c n)")[:, :length] for a in outputs)
