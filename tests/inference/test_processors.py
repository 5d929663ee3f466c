"""Processors: each by its definition, and in every strategy as a plain loop over whole sequences applies them."""

import functools
import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.attention import NEVER
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.inference.processors import Forbidden, History, MinimumLength, NoRepeat, Processor, RepetitionPenalty
from transformer.inference.tokenwise import Greedy, Sample
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE

VOCAB, PROMPT, TOKENS, STOP = 4, 4, 6, 3
# Large weights and no tied embeddings: what was read decides what is likely.
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    max_length=PROMPT + TOKENS,
    num_layers=1,
    d_model=16,
    mixer=Attention(num_heads=2),
    feed_forward=FeedForward(d_ff=16, activation=ReLU()),
    norm=RMSNorm(),
    position=RoPE(),
    initializer=Normal(0.4),
    embedding=Embedding(initializer=Normal(0.4)),
    head=Head(tied=False),
)
PROMPTS = np.random.default_rng(0).integers(0, VOCAB, (3, PROMPT))
LENGTHS = np.array([4, 1, 3])


@functools.cache
def model():
    return split(LanguageModel(CONFIG, key=jax.random.key(3)))


def decode(strategy, *, num_tokens=TOKENS, stop=STOP):
    params, apply = model()
    run = functools.partial(generate, apply, num_tokens=num_tokens, strategy=strategy, stop=stop)
    arguments = {"lengths_B": jnp.asarray(LENGTHS), "key": jax.random.key(0)}
    return jax.device_get(jax.jit(run)(params, jnp.asarray(PROMPTS), **arguments))


@functools.cache
def whole():
    return jax.jit(model()[1])


@functools.cache
def following(sequence):
    """(V,) logits of the token after a sequence, by one pass without a cache."""
    padded = np.zeros((1, PROMPT + TOKENS), int)
    padded[0, : len(sequence)] = sequence
    return np.asarray(whole()(model()[0], jnp.asarray(padded)))[0, len(sequence) - 1]


def forbidden(processor, tokens, chosen):
    """The tokens that may not follow, by the definition."""
    if isinstance(processor, NoRepeat):
        n = processor.size
        grams = {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}
        return {t for t in range(VOCAB) if (*tokens, t)[len(tokens) + 1 - n :] in grams and len(tokens) + 1 >= n}
    if isinstance(processor, MinimumLength):
        return {STOP} if chosen < processor.length else set()
    return set(processor.tokens)


def plainly(processor, logits, tokens, chosen):
    """One processor on the logits of one sequence."""
    logits = np.array(logits)
    if isinstance(processor, RepetitionPenalty):
        for token in set(tokens) & set(np.flatnonzero(logits > NEVER).tolist()):
            logits[token] *= processor.penalty if logits[token] < 0 else 1 / processor.penalty
    else:
        logits[sorted(forbidden(processor, tokens, chosen))] = NEVER
    return logits


PROCESSORS = [RepetitionPenalty(1.5), *map(NoRepeat, (1, 2, 3)), *map(MinimumLength, (1, 3)), Forbidden((2, 0))]


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
@given(st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), min_size=1, max_size=4), st.integers())
def test_by_definition(processor, rows, seed):
    """For sequences of any lengths side by side, whatever stands behind them."""
    rng = np.random.default_rng(abs(seed))
    tokens = rng.integers(0, VOCAB, (len(rows), 13))
    for place, row in zip(tokens, rows, strict=True):
        place[: len(row)] = row
    lengths = np.array([len(row) for row in rows])
    chosen, logits = np.minimum(lengths, rng.integers(0, 5, len(rows))), rng.normal(size=(len(rows), VOCAB))
    history = History(*(jnp.asarray(a, jnp.int32) for a in (tokens, lengths, chosen)), STOP)
    got = np.asarray(processor(jnp.asarray(logits, jnp.float32), history))
    expected = [plainly(processor, *row) for row in zip(logits, map(tuple, rows), chosen, strict=True)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


COMBINED = [
    (),
    (RepetitionPenalty(2.0),),
    (NoRepeat(2), MinimumLength(4)),
    (Forbidden((1,)), RepetitionPenalty(1.5), MinimumLength(3)),
]


def processed(processors, prompt, tokens):
    """(V,) log P under the model and as processed."""
    logits = following((*prompt, *tokens))
    after = functools.reduce(lambda x, p: plainly(p, x, (*prompt, *tokens), len(tokens)), processors, logits)
    model_logs, logs = (np.asarray(jax.nn.log_softmax(jnp.asarray(x))).astype(float) for x in (logits, after))
    return model_logs, np.where(after > NEVER, logs, -np.inf)


@pytest.mark.parametrize("processors", COMBINED, ids=str)
def test_greedy(processors):
    """Each sequence of a batch has its own history; its probability is that of the model."""
    got, found = decode(Greedy(processors=processors)), set()
    for row, length in enumerate(LENGTHS):
        prompt, tokens, total = tuple(PROMPTS[row, :length].tolist()), (), 0.0
        while len(tokens) < TOKENS and STOP not in tokens:
            model_logs, logs = processed(processors, prompt, tokens)
            tokens = (*tokens, int(logs.argmax()))
            total += model_logs[tokens[-1]]
        assert got.tokens_BT[row, : got.lengths_B[row]].tolist() == list(tokens)
        np.testing.assert_allclose(got.log_probability_B[row], total, rtol=1e-5)
        found.add(tokens)
    assert len(found) > 1


@pytest.mark.parametrize("processors", COMBINED, ids=str)
def test_a_beam_of_one_is_greedy(processors):
    beam, greedy = decode(Beam(1, processors=processors)), decode(Greedy(processors=processors))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), beam, greedy)


@pytest.mark.parametrize("processors", COMBINED, ids=str)
def test_wide_beams_are_exhaustive(processors):
    """The best of all sequences that end, by their probability as processed; the one reported is that of the model.

    So each beam is processed by its own history, which is reordered with it.
    """
    num_tokens, better = 5, []
    got = decode(Beam(VOCAB**3, alpha=0.0, early_stopping=False, processors=processors), num_tokens=num_tokens)
    for row, length in enumerate(LENGTHS):
        prompt, sums = tuple(PROMPTS[row, :length].tolist()), {(): np.zeros(2)}
        for tokens in itertools.chain(*(itertools.product(range(VOCAB), repeat=n) for n in range(num_tokens))):
            if tokens in sums and STOP not in tokens:
                logs = np.stack(processed(processors, prompt, tokens), 1)
                sums |= {(*tokens, t): sums[tokens] + logs[t] for t in range(VOCAB)}
        best = max((tokens for tokens in sums if STOP in tokens), key=lambda tokens: sums[tokens][1])
        assert got.tokens_BT[row, : got.lengths_B[row]].tolist() == list(best)
        np.testing.assert_allclose(got.log_probability_B[row], sums[best][0], rtol=1e-5)
        better.append(sums[best][0] - sums[best][1])
    assert (np.abs(better).max() > 1e-3) == bool(processors)


def test_samples_keep_to_the_rules():
    """What is forbidden is never drawn, at any temperature and with any cut."""
    processors = (NoRepeat(2), MinimumLength(3), Forbidden((1,)))
    for strategy in (Sample(processors=processors), Sample(0.5, top_k=2, top_p=0.9, min_p=0.1, processors=processors)):
        got = decode(strategy)
        for row, length in enumerate(LENGTHS):
            tokens = [*PROMPTS[row, :length], *got.tokens_BT[row, : got.lengths_B[row]]]
            for end in range(length, len(tokens)):
                rules = [forbidden(p, tuple(tokens[:end]), end - length) for p in processors]
                assert tokens[end] not in set().union(*rules) or len(set().union(*rules)) == VOCAB


@pytest.mark.parametrize(
    ("processor", "stop", "message"),
    [
        (MinimumLength(), None, "minimum_length needs a stop token, and there is none; give `stop`"),
        (Forbidden((VOCAB,)), STOP, rf"forbidden.tokens: {VOCAB} is not in \[0, {VOCAB}\)"),
        (Forbidden((-1,)), STOP, rf"forbidden.tokens: -1 is not in \[0, {VOCAB}\)"),
        (Forbidden(tuple(range(VOCAB))), STOP, r"^forbidden.tokens: all tokens are forbidden"),
        (MinimumLength(TOKENS + 1), STOP, rf"^generate: minimum_length\(.*\) asks for more than num_tokens, {TOKENS}"),
    ],
)
def test_what_cannot_be(processor, stop, message):
    with pytest.raises(ConfigError, match=message):
        decode(Greedy(processors=(processor,)), stop=stop)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RepetitionPenalty(0.0), "repetition_penalty.penalty: 0.0 is not a positive number; 1 changes nothing"),
        (lambda: RepetitionPenalty(np.inf), "repetition_penalty.penalty: inf is not a positive number"),
        (lambda: NoRepeat(0), "no_repeat.size: 0 is not a positive number"),
        (lambda: MinimumLength(0), "minimum_length.length: 0 is not a positive number"),
    ],
)
def test_impossible_values_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_logits_of_another_shape_are_no_logits():
    """Those of one sequence would be taken for those of all."""

    @dataclass(frozen=True)
    class OfFirst(Processor):
        def __call__(self, logits_BV, history):
            return logits_BV[:1]

    with pytest.raises(ConfigError, match=r"^offirst: it returns float32 \(1, 4\) for logits float32 \(3, 4\)"):
        decode(Greedy(processors=(OfFirst(),)))

    @dataclass(frozen=True)
    class Allowed(Processor):
        """Tokens that may come, in place of their logits."""

        def __call__(self, logits_BV, history):
            return logits_BV > 0

    with pytest.raises(ConfigError, match=r"^allowed: it returns bool \(3, 4\) for logits float32 \(3, 4\)"):
        decode(Greedy(processors=(Allowed(),)))
