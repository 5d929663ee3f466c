"""Beam search: batched, in one compiled program, beams reordered in the cache."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange, repeat
from jax import lax

from transformer.functional.cache import Cache
from transformer.inference.results import Generated, Prompt, read_prompt
from transformer.inference.strategies import NEVER, Beam
from transformer.models.pure import Apply, Params


class BeamState(NamedTuple):
    """Where the search is. W beams a sequence; in the cache they are rows, (B · W)."""

    step: jax.Array
    log_probabilities_BWV: jax.Array
    """Of the next token of each beam."""
    cache: Cache
    live_tokens_BWT: jax.Array
    live_scores_BW: jax.Array
    """log P of each unfinished sequence."""
    done_tokens_BWT: jax.Array
    done_scores_BW: jax.Array
    """log P / penalty of the best finished sequences, best first; NEVER where there is none."""
    done_log_probabilities_BW: jax.Array
    done_lengths_BW: jax.Array


def beam_search(
    apply: Apply, params: Params, prompt: Prompt, *, num_tokens: int, strategy: Beam, stop: int | None
) -> Generated:
    """The best sequence found for each prompt; one without an end token only where none was finished.

    A candidate that ends counts as finished only if it is among the `size` best of its step, so
    that a beam of one is greedy decoding.
    """
    W, B = strategy.size, len(prompt.tokens_BL)
    logits_BV, cache = read_prompt(apply, params, prompt, num_tokens)
    read, V = apply(params, method="reader"), logits_BV.shape[-1]
    cache = _repeat_rows(cache, W)
    start = BeamState(
        jnp.int32(0),
        repeat(jax.nn.log_softmax(logits_BV), "b v -> b w v", w=W),
        cache,
        jnp.zeros((B, W, num_tokens), jnp.int32),
        jnp.where(jnp.arange(W) == 0, 0.0, NEVER) * jnp.ones((B, 1)),  # all beams are the same at first
        jnp.zeros((B, W, num_tokens), jnp.int32),
        jnp.full((B, W), NEVER),
        jnp.full((B, W), NEVER),
        jnp.zeros((B, W), jnp.int32),
    )

    def settled(state: BeamState) -> jax.Array:
        """(B,) whether the search of a sequence is over; others of the batch may go on."""
        finished_B = state.done_scores_BW[:, -1] > NEVER
        if not strategy.early_stopping:
            # Scores only fall, and the longest sequence has the mildest penalty.
            attainable_B = state.live_scores_BW[:, 0] / strategy.penalty(jnp.int32(num_tokens))
            finished_B &= attainable_B <= state.done_scores_BW[:, -1]
        return finished_B

    def go_on(state: BeamState) -> jax.Array:
        return (state.step < num_tokens) & ~settled(state).all()

    def step(state: BeamState) -> BeamState:
        scores_BX = rearrange(state.live_scores_BW[..., None] + state.log_probabilities_BWV, "b w v -> b (w v)")
        best_BC, places_BC = lax.top_k(jnp.maximum(scores_BX, NEVER), min(2 * W, W * V))
        parents_BC, tokens_BC = places_BC // V, (places_BC % V).astype(jnp.int32)
        ends_BC = jnp.zeros(tokens_BC.shape, jnp.bool) if stop is None else tokens_BC == stop
        sequences_BCT = _take(state.live_tokens_BWT, parents_BC).at[:, :, state.step].set(tokens_BC)
        length = state.step + 1

        # Finished: those that end now, among the W best of the step, and those that ended before.
        counted_BC = ends_BC & (jnp.arange(best_BC.shape[1]) < W) & (best_BC > NEVER) & ~settled(state)[:, None]
        ended_BC = jnp.where(counted_BC, best_BC / strategy.penalty(length), NEVER)
        done_scores, order_BW = lax.top_k(jnp.concatenate([state.done_scores_BW, ended_BC], 1), W)

        def best_done(old_BW, new_BC):
            return _take(jnp.concatenate([old_BW, new_BC], 1), order_BW)

        lengths_BC = jnp.full(tokens_BC.shape, length, jnp.int32)

        # Live: the W best that do not end; there are as many, for at most W of 2 W candidates end.
        live_scores, order_BL = lax.top_k(jnp.where(ends_BC, NEVER, best_BC), W)
        parents_BW, tokens_BW = _take(parents_BC, order_BL), _take(tokens_BC, order_BL)
        rows = rearrange(jnp.arange(B)[:, None] * W + parents_BW, "b w -> (b w)")
        cache = _of_rows(lambda a: a[rows], state.cache)
        logits, cache = read(rearrange(tokens_BW, "b w -> (b w) 1"), cache)
        return BeamState(
            length,
            rearrange(jax.nn.log_softmax(logits[:, 0]), "(b w) v -> b w v", w=W),
            cache,
            _take(sequences_BCT, order_BL),
            live_scores,
            best_done(state.done_tokens_BWT, sequences_BCT),
            done_scores,
            best_done(state.done_log_probabilities_BW, best_BC),
            best_done(state.done_lengths_BW, lengths_BC),
        )

    end = lax.while_loop(go_on, step, start)
    none_B = end.done_scores_BW[:, 0] == NEVER
    return Generated(
        jnp.where(none_B[:, None], end.live_tokens_BWT[:, 0], end.done_tokens_BWT[:, 0]),
        jnp.where(none_B, end.step, end.done_lengths_BW[:, 0]),
        jnp.where(none_B, end.live_scores_BW[:, 0], end.done_log_probabilities_BW[:, 0]),
    )


def _take(array: jax.Array, index_BC: jax.Array) -> jax.Array:
    """array[b, index[b, c]] for each b and c."""
    return jax.vmap(lambda a, i: a[i])(array, index_BC)


def _repeat_rows(cache: Cache, count: int) -> Cache:
    """Each sequence `count` times, side by side; what all sequences share stays as it is."""

    def again(a):
        return repeat(a, "b ... -> (b w) ...", w=count)

    B = len(cache.next_position_B)
    memory = jax.tree.map(lambda heads: _of_heads(again, heads, B), cache.memory)
    memory_tokens = cache.memory_tokens
    if memory_tokens is not None and memory_tokens.valid is not None:
        memory_tokens = memory_tokens._replace(valid=again(memory_tokens.valid))
    return _of_rows(again, cache)._replace(memory=memory, memory_tokens=memory_tokens)


def _of_rows(function: Callable[[jax.Array], jax.Array], cache: Cache) -> Cache:
    """`function` of all that grows with a sequence; beams of one sequence have one source, which stays in order."""
    assert cache.tokens.valid is not None
    B = len(cache.next_position_B)
    tokens = cache.tokens._replace(positions=function(cache.tokens.positions), valid=function(cache.tokens.valid))
    layers = jax.tree.map(lambda heads: _of_heads(function, heads, B), cache.layers)
    return cache._replace(layers=layers, tokens=tokens, next_position_B=function(cache.next_position_B))


def _of_heads(function: Callable[[jax.Array], jax.Array], heads: jax.Array, batch_size: int) -> jax.Array:
    """`function` of the sequences in an array (B · G, …)."""
    made = function(heads.reshape(batch_size, -1, *heads.shape[1:]))
    return made.reshape(-1, *heads.shape[1:])
