"""Speculative decoding: a small model guesses several tokens, and the large one reads them all at once."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from transformer.core.checks import is_count
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params, check_apply
from transformer.core.sources import code_of
from transformer.functional.cache import Cache, Reader, rewind
from transformer.inference.parts import in_parts
from transformer.inference.prompt import Generated, Prompt, check_prompt
from transformer.inference.scoring import label_log_probabilities
from transformer.inference.strategies import check_decoding, check_length
from transformer.inference.tokenwise import GREEDY, TokenStrategy


def speculate(
    apply: Apply,
    params: Params,
    draft_apply: Apply,
    draft_params: Params,
    prompt_BL: jax.Array,
    *,
    num_tokens: int,
    ahead: int = 4,
    strategy: TokenStrategy = GREEDY,
    stop: int | None = None,
    lengths_B: jax.Array | None = None,
    inputs: Mapping[str, Any] | None = None,
    prefix: bool = False,
    key: jax.Array | None = None,
    mesh: Mesh | None = None,
) -> tuple[Generated, jax.Array]:
    """`generate` with the same distribution and fewer passes of the model (Leviathan et al. 2023, algorithm 1).

    Args:
      apply: the pure model whose continuations are wanted.
      params: its parameters.
      draft_apply: a faster model with the same vocabulary.
      draft_params: its parameters.
      prompt_BL: (B, L) int32, L at least 1.
      num_tokens: the largest number of tokens to choose.
      ahead: tokens that are guessed before the model reads them, γ in the paper.
      strategy: `Greedy()` or `Sample(…)`, for both models.
      stop: as in `generate`.
      lengths_B: as in `generate`.
      inputs: as in `generate`, the same for both models.
      prefix: as in `generate`, for both models.
      key: as in `generate`.
      mesh: as in `generate`.

    Returns:
      The continuations, and (B,) how often the model read guesses: `num_tokens` - 1 times where all are
      wrong, and ⌈(`num_tokens` - 1) / (`ahead` + 1)⌉ times where all are right.

    Raises:
      ConfigError: as `generate`, or the strategy does not choose token by token, or the vocabularies differ.
    """
    check_decoding("speculate", num_tokens, stop, strategy, key, mesh)
    check_length("speculate", strategy, num_tokens)
    check_apply(draft_apply, "speculate: draft_apply")
    if not is_count(ahead) or ahead < 1:
        raise ConfigError(f"speculate: ahead {ahead!r} is not a positive number")
    if not isinstance(strategy, TokenStrategy):
        raise ConfigError(f"speculate: {strategy} does not choose token by token; use greedy or sample")
    check_prompt("speculate", apply, params, prompt_BL, lengths_B, inputs or {}, stop)
    chosen = {"num_tokens": num_tokens, "ahead": ahead, "strategy": strategy, "stop": stop, "prefix": prefix}
    chosen |= {"code": code_of(strategy)}
    sequences = (prompt_BL, lengths_B, inputs or {})
    return _speculate(apply, draft_apply, (params, draft_params), sequences, key, **chosen, mesh=mesh)


@functools.partial(
    jax.jit,
    static_argnames=("apply", "draft_apply", "num_tokens", "ahead", "strategy", "stop", "prefix", "mesh", "code"),
)
def _speculate(
    apply, draft_apply, params, sequences, key, *, num_tokens, ahead, strategy, stop, prefix, mesh, code
) -> tuple[Generated, jax.Array]:
    """The program; another one where a strategy of one's own has other code."""

    def decode(params, sequences, key) -> tuple[Generated, jax.Array]:
        prompt_BL, lengths_B, inputs = sequences
        model, draft = (
            Prompt(own, of, prompt_BL, num_tokens, stop, lengths_B, inputs, prefix)
            for own, of in zip((apply, draft_apply), params, strict=True)
        )
        return Speculation(model, draft, strategy, ahead, jax.random.key(0) if key is None else key).run()

    return in_parts(decode, mesh, params, sequences, key)


class SpeculativeState(NamedTuple):
    """The state of decoding. The latest token of each sequence is chosen and not yet read."""

    round: jax.Array
    """Rounds so far, () int32."""
    cache: Cache
    draft_cache: Cache
    tokens_BT: jax.Array
    """The chosen tokens; 0 where none is chosen yet."""
    log_probability_B: jax.Array
    lengths_B: jax.Array
    """Number of tokens of each sequence, the end token included."""
    finished_B: jax.Array
    rounds_B: jax.Array
    """Rounds until each sequence was finished."""


class Guesses(NamedTuple):
    """Guesses of the draft in a round; A is one more than the number of guesses."""

    cache: Cache
    read_BA: jax.Array
    """The latest token and the guesses after it, all of which the draft has read."""
    distributions_BAV: jax.Array
    """The draft's distribution of the token after each of `read_BA`."""
    tokens_BT: jax.Array
    """All tokens so far with the guesses in their places."""


class Speculation(NamedTuple):
    """Speculative decoding with a model and its draft."""

    model: Prompt
    draft: Prompt
    strategy: TokenStrategy
    ahead: int
    key: jax.Array

    @property
    def places(self) -> jax.Array:
        """The places of the latest token and the guesses after it, int32."""
        return jnp.arange(self.ahead + 1, dtype=jnp.int32)

    def run(self) -> tuple[Generated, jax.Array]:
        """(continuations, number of rounds of each, (B,))."""
        (logits_BV, cache), (draft_BV, draft_cache) = self.model.read(self.ahead), self.draft.read(self.ahead)
        if logits_BV.shape != draft_BV.shape:
            raise ConfigError(f"speculate: vocabularies of {logits_BV.shape[1]} and {draft_BV.shape[1]} tokens differ")
        B = len(logits_BV)
        none_B, tokens_BT = jnp.zeros(B, jnp.int32), jnp.zeros((B, self.model.num_tokens), jnp.int32)
        certain_B, finished_B = jnp.zeros(B, jnp.float32), jnp.zeros(B, jnp.bool)
        empty = SpeculativeState(jnp.int32(0), cache, draft_cache, tokens_BT, certain_B, none_B, finished_B, none_B)
        processed_BV = self.strategy.process(logits_BV, self.model, tokens_BT, jnp.int32(0))
        first_B1 = self.strategy(processed_BV, jax.random.fold_in(self.key, 0))[:, None]
        step = functools.partial(self.step, read=self.model.reader(), draft_read=self.draft.reader())
        start = self.append(empty, first_B1, logits_BV[:, None], none_B + 1)
        end = lax.while_loop(lambda state: ~state.finished_B.all(), step, start)
        return Generated(end.tokens_BT, end.lengths_B, end.log_probability_B), end.rounds_B

    def step(self, state: SpeculativeState, *, read: Reader, draft_read: Reader) -> SpeculativeState:
        """Guess, read the guesses, keep those that the model accepts, and add one token of its own."""
        draft_key, accept_key, own_key = jax.random.split(jax.random.fold_in(self.key, state.round + 1), 3)
        # The last token that may be chosen is never read.
        missing_B1 = jnp.where(state.finished_B, 0, self.model.num_tokens - state.lengths_B)[:, None]
        readable_BA = self.places < missing_B1
        guesses = self.guess(state, readable_BA, draft_read, draft_key)
        logits_BAV, cache = read(guesses.read_BA, state.cache, valid_BL=readable_BA)
        distributions_BAV = self.distributions(logits_BAV, guesses.tokens_BT, state.lengths_B)
        accepted_B, refused_B = self.accept(guesses, distributions_BAV, readable_BA, accept_key)

        def behind_accepted(array_BAV):
            return jnp.take_along_axis(array_BAV, accepted_B[:, None, None], 1)[:, 0]

        # After a rejection sample from max(p - q, 0) (algorithm 1).
        surplus_BV = jnp.where(refused_B[:, None], behind_accepted(guesses.distributions_BAV), 0.0)
        left_BV = jnp.maximum(behind_accepted(distributions_BAV) - surplus_BV, 0.0)
        own_B1 = jax.random.categorical(own_key, jnp.log(left_BV)).astype(jnp.int32)[:, None]
        guessed_BA = jnp.roll(guesses.read_BA, -1, 1)
        new_BA = jnp.where(self.places < accepted_B[:, None], guessed_BA, own_B1)
        count_B = jnp.where(state.finished_B, 0, accepted_B + 1)
        # Of the tokens read in this round, the latest one and the accepted guesses stay.
        next_position_B = state.cache.next_position_B + count_B
        state = self.append(state, new_BA, logits_BAV, count_B)
        caches = {"cache": rewind(cache, next_position_B), "draft_cache": rewind(guesses.cache, next_position_B)}
        return state._replace(
            **caches, round=state.round + 1, rounds_B=state.rounds_B + (count_B > 0).astype(jnp.int32)
        )

    def guess(self, state: SpeculativeState, readable_BA: jax.Array, read: Reader, key: jax.Array) -> Guesses:
        """Let the draft continue on its own; it reads its last guess too, so that both models have read the same."""
        rows_B = jnp.arange(len(readable_BA))

        def one(carry, inputs):
            (token_B, tokens_BT, cache), (i, readable_B) = carry, inputs
            logits_B1V, cache = read(token_B[:, None], cache, valid_BL=readable_B[:, None])
            place_B = state.lengths_B + i
            logits_BV = self.strategy.process(logits_B1V[:, 0], self.model, tokens_BT, place_B)
            guess_B = self.strategy(logits_BV, jax.random.fold_in(key, i))
            tokens_BT = tokens_BT.at[rows_B, place_B].set(guess_B, mode="drop")
            return (guess_B, tokens_BT, cache), (token_B, self.strategy.distribution(logits_BV))

        latest_B = state.tokens_BT[rows_B, state.lengths_B - 1]
        start = (latest_B, state.tokens_BT, state.draft_cache)
        (_, tokens_BT, cache), (read_AB, laws_ABV) = lax.scan(one, start, (self.places, readable_BA.T))
        return Guesses(cache, read_AB.T, jnp.moveaxis(laws_ABV, 0, 1), tokens_BT)

    def distributions(self, logits_BAV: jax.Array, tokens_BT: jax.Array, lengths_B: jax.Array) -> jax.Array:
        """The strategy's distribution after every token that was read, (B, A, V)."""

        def distribution(logits_BV, i):
            return self.strategy.distribution(self.strategy.process(logits_BV, self.model, tokens_BT, lengths_B + i))

        return jax.vmap(distribution, (1, 0), 1)(logits_BAV, self.places)

    def accept(
        self, guesses: Guesses, distributions_BAV: jax.Array, readable_BA: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """(B,) number of guesses kept, each with probability min(1, p / q), and whether one was rejected."""
        guessed_BG, offered_BG = guesses.read_BA[:, 1:, None], readable_BA[:, 1:]
        p_BG, q_BG = (
            jnp.take_along_axis(distributions[:, :-1], guessed_BG, 2)[..., 0]
            for distributions in (distributions_BAV, guesses.distributions_BAV)
        )
        kept_BG = offered_BG & (jax.random.uniform(key, p_BG.shape, jnp.float32) * q_BG < p_BG)
        accepted_B = jnp.cumprod(kept_BG.astype(jnp.int32), 1).sum(1, dtype=jnp.int32)
        return accepted_B, accepted_B < offered_BG.sum(1, dtype=jnp.int32)

    def append(
        self, state: SpeculativeState, new_BA: jax.Array, logits_BAV: jax.Array, count_B: jax.Array
    ) -> SpeculativeState:
        """The state with the first `count_B` of the new tokens, up to a stop token."""
        rows_B1, T = jnp.arange(len(new_BA))[:, None], self.model.num_tokens
        place_A = jnp.arange(new_BA.shape[1], dtype=jnp.int32)
        inside_BA = place_A < count_B[:, None]
        ends_BA = jnp.zeros(new_BA.shape, jnp.bool) if self.model.stop is None else new_BA == self.model.stop
        ended_BA = jnp.pad(ends_BA, ((0, 0), (1, 0)))[:, :-1]
        inside_BA &= ~lax.cummax(ended_BA.astype(jnp.int32), 1).astype(jnp.bool)
        places_BA = jnp.where(inside_BA, state.lengths_B[:, None] + place_A, T)
        chosen_BA = label_log_probabilities(logits_BAV, new_BA)
        lengths_B = state.lengths_B + inside_BA.sum(1, dtype=jnp.int32)
        return state._replace(
            tokens_BT=state.tokens_BT.at[rows_B1, places_BA].set(new_BA, mode="drop"),
            log_probability_B=state.log_probability_B + jnp.where(inside_BA, chosen_BA, 0.0).sum(1),
            lengths_B=lengths_B,
            finished_B=state.finished_B | (lengths_B == T) | (inside_BA & ends_BA).any(1),
        )
