"""Beam search: batched, in one compiled program, the beams of a sequence a tree in one row of the cache."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange, repeat
from jax import lax

from transformer.core.checks import check_not_negative, check_positive
from transformer.functional.attention import NEVER
from transformer.functional.cache import Cache, Reader, select_beams, with_beams
from transformer.inference.prompt import Generated, Prompt
from transformer.inference.strategies import Strategy


class BeamState(NamedTuple):
    """The state of the search. Each sequence has W beams."""

    step: jax.Array
    """Tokens chosen so far, int32."""
    newest_BW: jax.Array
    """The last of them, which the model reads next."""
    cache: Cache
    live_tokens_BWT: jax.Array
    live_scores_BW: jax.Array
    """log P of each unfinished sequence under the processed logits, in nats."""
    live_log_probabilities_BW: jax.Array
    """The same under the model itself."""
    done_tokens_BWT: jax.Array
    done_scores_BW: jax.Array
    """log P / penalty of the best finished sequences, best first; NEVER where there is none."""
    done_log_probabilities_BW: jax.Array
    """log P of these under the model itself."""
    done_lengths_BW: jax.Array


@dataclass(frozen=True)
class Beam(Strategy):
    """The likeliest whole sequence, searched for among the `size` best beginnings (Sutskever et al. 2014).

    Sequences are ranked by log-probability / penalty, where the penalty is length^alpha or
    ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14) and probabilities are of the processed logits.
    """

    size: int = 4
    """Number of beams."""
    alpha: float = 1.0
    """Exponent of the length in the penalty; 0: no penalty."""
    gnmt: bool = False
    """Whether the penalty is that of Wu et al. 2016."""
    early_stopping: bool = False
    """Whether to stop at `size` finished sequences, which in a small vocabulary may be unlikely stubs.

    Otherwise the search stops when no unfinished sequence can still be ranked among them. A single beam always
    stops early, which makes it greedy decoding.
    """

    def __post_init__(self):
        check_positive(self, "size")
        check_not_negative(self, "alpha")

    def penalty(self, length: jax.Array) -> jax.Array:
        """The divisor of a log-probability; `length` includes the end token."""
        length = length.astype(jnp.float32)
        return ((5 + length) / 6 if self.gnmt else length) ** self.alpha

    def decode(self, prompt, key):
        """The best sequence found for each prompt; an unfinished one only where none was finished."""

        def go_on(state: BeamState) -> jax.Array:
            return (state.step < prompt.num_tokens) & ~self.settled(state).all()

        step = functools.partial(self.step, prompt=prompt, read=prompt.reader())
        end = prompt.loop(go_on, step, self.start(prompt))
        none_B = end.done_scores_BW[:, 0] == NEVER
        return Generated(
            jnp.where(none_B[:, None], end.live_tokens_BWT[:, 0], end.done_tokens_BWT[:, 0]),
            jnp.where(none_B, end.step, end.done_lengths_BW[:, 0]),
            jnp.where(none_B, end.live_log_probabilities_BW[:, 0], end.done_log_probabilities_BW[:, 0]),
        )

    def start(self, prompt: Prompt) -> BeamState:
        """The state after the first token of each beam."""
        logits_BV, cache = prompt.read()
        more = max(prompt.num_tokens - 1, 1)  # with a single token the loop never runs, but is traced
        shape = (len(logits_BV), self.size)
        scores_BW = jnp.where(jnp.arange(self.size) == 0, 0.0, NEVER) * jnp.ones(shape, jnp.float32)
        state = BeamState(
            jnp.int32(0),
            jnp.zeros(shape, jnp.int32),
            with_beams(cache, self.size, prompt.tokens_BL.shape[1], more),
            jnp.zeros((*shape, prompt.num_tokens), jnp.int32),
            scores_BW,  # the other beams are copies of the first and do not count
            scores_BW,
            jnp.zeros((*shape, prompt.num_tokens), jnp.int32),
            jnp.full(shape, NEVER, jnp.float32),
            jnp.full(shape, NEVER, jnp.float32),
            jnp.zeros(shape, jnp.int32),
        )
        return self.choose(state, repeat(logits_BV, "b v -> b w v", w=self.size), prompt)

    def settled(self, state: BeamState) -> jax.Array:
        """Whether the search of each sequence is over, (B,); others of the batch may continue."""
        finished_B = state.done_scores_BW[:, -1] > NEVER
        if not self.early_stopping and self.size > 1:
            # Log-probabilities only fall, and the longest sequence has the largest divisor.
            attainable_B = state.live_scores_BW[:, 0] / self.penalty(jnp.int32(state.live_tokens_BWT.shape[-1]))
            finished_B &= attainable_B <= state.done_scores_BW[:, -1]
        return finished_B

    def step(self, state: BeamState, *, prompt: Prompt, read: Reader) -> BeamState:
        """Read the newest token of each live beam, and choose the next."""
        logits_BWV, cache = read(state.newest_BW, state.cache)
        return self.choose(state._replace(cache=cache), logits_BWV, prompt)

    def choose(self, state: BeamState, logits_BWV: jax.Array, prompt: Prompt) -> BeamState:
        """Extend all live beams by a token: those that end may be finished, and the best of the others stay live.

        A candidate that ends counts as finished only if it is among the `size` best of its step, so
        that a beam of one, which stops at the first sequence that ends, is greedy decoding.
        """
        W, V = self.size, logits_BWV.shape[-1]
        model_BWV, ranked_BWV = self.log_probabilities(state, logits_BWV, prompt)
        scores_BX = rearrange(state.live_scores_BW[..., None] + ranked_BWV, "b w v -> b (w v)")
        best_BC, places_BC = lax.top_k(jnp.maximum(scores_BX, NEVER), min(2 * W, W * V))
        parents_BC, tokens_BC = places_BC // V, (places_BC % V).astype(jnp.int32)
        log_probabilities_BC = best_BC
        if self.processors:
            sums_BX = rearrange(state.live_log_probabilities_BW[..., None] + model_BWV, "b w v -> b (w v)")
            log_probabilities_BC = _take(sums_BX, places_BC)
        ends_BC = jnp.zeros(tokens_BC.shape, jnp.bool) if prompt.stop is None else tokens_BC == prompt.stop
        sequences_BCT = _take(state.live_tokens_BWT, parents_BC).at[:, :, state.step].set(tokens_BC)
        state = self.finish(state, best_BC, log_probabilities_BC, ends_BC, sequences_BCT)

        # At least W of the 2 W candidates do not end, because at most W end.
        live_scores, order_BL = lax.top_k(jnp.where(ends_BC, NEVER, best_BC), W)
        parents_BW, tokens_BW = _take(parents_BC, order_BL), _take(tokens_BC, order_BL)
        return state._replace(
            step=state.step + 1,
            newest_BW=tokens_BW,
            cache=select_beams(state.cache, parents_BW),
            live_tokens_BWT=_take(sequences_BCT, order_BL),
            live_scores_BW=live_scores,
            live_log_probabilities_BW=_take(log_probabilities_BC, order_BL) if self.processors else live_scores,
        )

    def log_probabilities(self, state: BeamState, logits_BWV: jax.Array, prompt: Prompt) -> tuple[jax.Array, jax.Array]:
        """(B, W, V) log-probabilities of the next token, under the model and as processed; NEVER if forbidden."""
        model_BWV = jax.nn.log_softmax(logits_BWV)
        if not self.processors:
            return model_BWV, model_BWV

        def process(logits_BV, tokens_BT):
            return self.process(logits_BV, prompt, tokens_BT, state.step)

        logits_BWV = jax.vmap(process, 1, 1)(logits_BWV, state.live_tokens_BWT)
        return model_BWV, jnp.where(logits_BWV > NEVER, jax.nn.log_softmax(logits_BWV), NEVER)

    def finish(self, state: BeamState, best_BC, log_probabilities_BC, ends_BC, sequences_BCT) -> BeamState:
        """Rank candidates that end now together with sequences that ended before."""
        length = state.step + 1
        counted_BC = ends_BC & (jnp.arange(best_BC.shape[1]) < self.size) & (best_BC > NEVER)
        counted_BC &= ~self.settled(state)[:, None]
        ended_BC = jnp.where(counted_BC, best_BC / self.penalty(length), NEVER)
        done_scores, order_BW = lax.top_k(jnp.concatenate([state.done_scores_BW, ended_BC], 1), self.size)

        def best(old_BW, new_BC):
            return _take(jnp.concatenate([old_BW, new_BC], 1), order_BW)

        return state._replace(
            done_tokens_BWT=best(state.done_tokens_BWT, sequences_BCT),
            done_scores_BW=done_scores,
            done_log_probabilities_BW=best(state.done_log_probabilities_BW, log_probabilities_BC),
            done_lengths_BW=best(state.done_lengths_BW, jnp.full(best_BC.shape, length, jnp.int32)),
        )


def _take(array: jax.Array, index_BC: jax.Array) -> jax.Array:
    """array[b, index[b, c]] for each b and c."""
    return jax.vmap(lambda a, i: a[i])(array, index_BC)
