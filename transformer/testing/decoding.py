"""Properties of what decoding is made of: processors of logits, and strategies that choose tokens.

Each raises AssertionError with one line where it does not hold.
"""

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from transformer.functional.attention import NEVER
from transformer.inference.generate import generate
from transformer.inference.processors import History, Processor
from transformer.inference.prompt import Generated
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import TokenStrategy
from transformer.models.build import pure_model
from transformer.testing.comparing import applies, close
from transformer.testing.subject import VOCAB, compiled, initial_values, shaken, small, tokens_of

BATCH, ROOM, STOP = 4, 6, 2
DRAWS = 4096
LOGITS = np.random.default_rng(0).normal(size=(BATCH, VOCAB)).astype(np.float32)
LENGTHS = np.array([ROOM, 1, 3, 2], np.int32)
PROMPTS = tokens_of(BATCH, ROOM)
ROWS = np.arange(BATCH)


def processed(processor: Processor, rows: np.ndarray = ROWS, tokens_BS: np.ndarray = PROMPTS) -> np.ndarray:
    """What a processor makes of the logits of some sequences."""

    def run(logits_BV, tokens_BS, lengths_B):
        return processor(logits_BV, History(tokens_BS, lengths_B, lengths_B // 2, STOP))

    return np.asarray(compiled(run)(LOGITS[rows], tokens_BS[rows], LENGTHS[rows]))


def alike(one_BV: np.ndarray, other_BV: np.ndarray, what: str) -> None:
    """Fail where other tokens are forbidden, or others have other logits."""
    allowed_BV = other_BV > NEVER
    assert ((one_BV > NEVER) == allowed_BV).all(), f"{what}: other tokens are forbidden"
    close(np.where(allowed_BV, one_BV, 0.0), np.where(allowed_BV, other_BV, 0.0), what)


def logits_again(processor: Processor) -> None:
    """A finite float32 logit for each token; NEVER, which is finite, forbids one."""
    logits_BV = processed(processor)
    assert logits_BV.shape == LOGITS.shape, f"it returns {logits_BV.shape} for logits {LOGITS.shape}"
    assert logits_BV.dtype == np.float32, f"it returns {logits_BV.dtype}"
    assert np.isfinite(logits_BV).all(), "a logit is not finite; NEVER forbids a token"


def of_its_sequence(processor: Processor) -> None:
    """The logits of a sequence are those that it has alone."""
    alone_BV = np.concatenate([processed(processor, ROWS[row : row + 1]) for row in ROWS])
    alike(processed(processor), alone_BV, "a sequence beside others")


def of_what_was_read(processor: Processor) -> None:
    """What stands past the length of a sequence is not part of it."""
    others = np.where(np.arange(ROOM) < LENGTHS[:, None], PROMPTS, (PROMPTS + 1) % VOCAB)
    alike(processed(processor, tokens_BS=others), processed(processor), "other tokens past the length")


PROCESSOR = (logits_again, of_its_sequence, of_what_was_read)


def by_token(strategy: Strategy) -> TokenStrategy:
    """The strategy, where it chooses one token after another."""
    applies(isinstance(strategy, TokenStrategy))
    return cast(TokenStrategy, strategy)


def probable(strategy: Strategy) -> None:
    """Probabilities of the tokens, which sum to 1, and of each sequence from its own logits."""
    strategy = by_token(strategy)
    probability_BV = np.asarray(strategy.distribution(jnp.asarray(LOGITS)))
    assert probability_BV.shape == LOGITS.shape, f"distribution returns {probability_BV.shape} for {LOGITS.shape}"
    assert (probability_BV >= 0).all(), "a probability is negative"
    close(probability_BV.sum(1), np.ones(BATCH), "the sum of the probabilities is not 1", 1e-5)
    alone_BV = np.concatenate([strategy.distribution(jnp.asarray(LOGITS[row : row + 1])) for row in ROWS])
    close(probability_BV, alone_BV, "a sequence beside others", 1e-5)


def drawn_as_said(strategy: Strategy) -> None:
    """The tokens are chosen with the probabilities of `distribution`, for each sequence by itself.

    Of 4,096 draws no token comes more than five standard errors and a draw too often or too seldom.
    """
    strategy = by_token(strategy)
    logits_BV = jnp.broadcast_to(jnp.asarray(LOGITS[:1]), (DRAWS, VOCAB))
    token_B = np.asarray(compiled(strategy)(logits_BV, jax.random.key(0)))
    assert token_B.shape == (DRAWS,), f"it chooses {token_B.shape} for {DRAWS} sequences"
    assert token_B.dtype == np.int32, f"its tokens are {token_B.dtype}"
    assert ((token_B >= 0) & (token_B < VOCAB)).all(), "it chooses a token that is none"
    expected_V = DRAWS * np.asarray(strategy.distribution(logits_BV[:1]), np.float64)[0]
    count_V = np.bincount(token_B, minlength=VOCAB)
    allowed_V = 1 + 5 * np.sqrt(expected_V * (1 - expected_V / DRAWS).clip(0))
    worst = int(np.argmax(np.abs(count_V - expected_V) - allowed_V))
    assert abs(count_V[worst] - expected_V[worst]) <= allowed_V[worst], (
        f"token {worst} is chosen {count_V[worst]} times of {DRAWS}, and distribution says {expected_V[worst]:.1f}"
    )


def random_if_said(strategy: Strategy) -> None:
    """The key decides where `random` says so, and nowhere else."""
    strategy = by_token(strategy)
    applies(not strategy.random)
    one, other = (np.asarray(strategy(jnp.asarray(LOGITS), jax.random.key(seed))) for seed in range(2))
    assert (one == other).all(), "another key chooses other tokens, and random is False"


def decodes(strategy: Strategy) -> None:
    """Continuations of tokens, the same with the same key, that end at the stop token and have no token after it."""
    first, again = _continued(strategy), _continued(strategy)
    shapes = [np.shape(each) for each in first]
    assert shapes == [(BATCH, ROOM), (BATCH,), (BATCH,)], f"decode returns {shapes} for {BATCH} times {ROOM} tokens"
    assert (first.tokens_BT == again.tokens_BT).all(), "the same key gives other tokens"
    assert np.isfinite(first.log_probability_B).all(), "the log probability of a continuation is not finite"
    for tokens, length in zip(first.tokens_BT, first.lengths_B, strict=True):
        assert 0 < length <= ROOM, f"a continuation has {length} of at most {ROOM} tokens"
        assert ((tokens >= 0) & (tokens < VOCAB)).all(), "a token is none of the vocabulary"
        assert STOP not in tokens[: length - 1], "a continuation goes on after the stop token"
        assert length == ROOM or tokens[length - 1] == STOP, "a continuation ends early, without the stop token"
        assert not tokens[length:].any(), "a continuation has tokens past its length"


def _continued(strategy: Strategy) -> Any:
    params, apply = _model()
    run = functools.partial(generate, apply, num_tokens=ROOM, strategy=strategy, stop=STOP)
    found = compiled(run)(params, PROMPTS, lengths_B=LENGTHS, key=jax.random.key(0))
    assert isinstance(found, Generated), f"decode returns {type(found).__name__}, and Generated is needed"
    return jax.device_get(found)


@functools.cache
def _model():
    config = small(max_length=2 * ROOM)
    return shaken(initial_values(config)), pure_model(config)[1]


STRATEGY = (probable, drawn_as_said, random_if_said, decodes)
