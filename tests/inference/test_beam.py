"""Beam search: greedy where it is narrow, exhaustive where it is wide, and a plain search without cache in between."""

import dataclasses
import functools
import itertools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.attention import NEVER
from transformer.inference.beam import Beam, BeamState
from transformer.inference.generate import generate
from transformer.inference.prompt import Prompt
from transformer.inference.scoring import sequence_log_probability
from transformer.inference.tokenwise import Greedy
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import RMSNorm
from transformer.residuals.residual import NoNormResidual

VOCAB, PROMPT, TOKENS, STOP = 5, 3, 5, 4
LENGTH = PROMPT + TOKENS
# Large weights and no tied embeddings: what was read decides what is likely.
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    max_length=LENGTH,
    num_layers=2,
    d_model=16,
    mixer=Attention(num_heads=4),
    feed_forward=FeedForward(d_ff=16, activation=ReLU()),
    norm=RMSNorm(),
    initializer=Normal(0.4),
    embedding=Embedding(initializer=Normal(0.4)),
    head=Head(tied=False),
).replace(position="rope")
PROMPTS = np.random.default_rng(0).integers(0, STOP, (4, PROMPT))
LENGTHS = np.array([3, 1, 2, 3])
SEEDS = range(4)


@functools.cache
def language_model(config=CONFIG, seed=0):
    """Parameters of a seed; the function is the same for all."""
    params, apply = split(LanguageModel(config, key=jax.random.key(seed)))
    return params, apply if seed == 0 else language_model(config)[1]


@functools.cache
def program(apply, strategy, num_tokens, stop):
    run = functools.partial(generate, apply, num_tokens=num_tokens, strategy=strategy, stop=stop)
    return jax.jit(run)


def decode(model, prompts, strategy, *, num_tokens=TOKENS, stop=STOP, **more):
    params, apply = model
    return jax.device_get(program(apply, strategy, num_tokens, stop)(params, jnp.asarray(prompts), **more))


@functools.cache
def whole(apply):
    return jax.jit(lambda *args: jax.nn.log_softmax(apply(*args)))


def following(model, sequences, rows, *sources):
    """log P of the token after each sequence, (number of sequences, V), by one pass over `rows` of one length."""
    params, apply = model
    padded = np.zeros((rows, LENGTH), int)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = sequence
    sources = [jnp.broadcast_to(source, (rows, len(source))) for source in sources]
    logs = np.asarray(whole(apply)(params, *sources, jnp.asarray(padded)))
    return [logs[row, len(sequence) - 1] for row, sequence in enumerate(sequences)]


def penalty(strategy, length):
    return ((5 + length) / 6 if strategy.gnmt else length) ** strategy.alpha


def plain_beam_search(model, prompt, strategy, *sources):
    """(tokens, log P) by lists of sequences that are read again and again."""
    live, done = [(0.0, ())], []
    for length in range(1, TOKENS + 1):
        logs = following(model, [(*prompt, *tokens) for _, tokens in live], strategy.size, *sources)
        extended = [
            (so_far + more, (*tokens, token))
            for (so_far, tokens), row in zip(live, logs, strict=True)
            for token, more in enumerate(row.astype(float))
        ]
        best = sorted(extended, reverse=True)[: 2 * strategy.size]
        ended = [
            (p / penalty(strategy, length), p, tokens) for p, tokens in best[: strategy.size] if tokens[-1] == STOP
        ]
        done = sorted(done + ended, reverse=True)[: strategy.size]
        live = [(p, tokens) for p, tokens in best if tokens[-1] != STOP][: strategy.size]
        attainable = live[0][0] / penalty(strategy, TOKENS)
        if len(done) == strategy.size and (strategy.early_stopping or attainable <= done[-1][0]):
            break
    return (done[0][2], done[0][1]) if done else live[0][::-1]


def assert_found(got, row, tokens, log_probability):
    """Row of what was generated: these tokens with 0 behind them, their number and their probability."""
    assert got.tokens_BT[row].tolist() == [*tokens, *[0] * (got.tokens_BT.shape[1] - len(tokens))]
    assert got.lengths_B[row] == len(tokens)
    np.testing.assert_allclose(got.log_probability_B[row], log_probability, rtol=1e-5)


@pytest.mark.parametrize("stop", [None, STOP])
def test_a_beam_of_one_is_greedy(stop):
    """One beam keeps the most likely token of each step and ends with the stop token."""
    lengths = set()
    for seed in range(12):
        beam, greedy = (
            decode(language_model(seed=seed), PROMPTS, strategy, stop=stop) for strategy in (Beam(1), Greedy())
        )
        np.testing.assert_array_equal(beam.tokens_BT, greedy.tokens_BT)
        np.testing.assert_array_equal(beam.lengths_B, greedy.lengths_B)
        np.testing.assert_allclose(beam.log_probability_B, greedy.log_probability_B, rtol=1e-5)
        lengths |= set(greedy.lengths_B.tolist())
    assert len(lengths) > 2 if stop else lengths == {TOKENS}


def every_sequence(model, prompt, vocab_size, num_tokens):
    """{tokens: log P} of all beginnings of all continuations."""
    continuations = list(itertools.product(range(vocab_size), repeat=num_tokens))
    params, apply = model
    sequences = jnp.asarray([(*prompt, *tokens) for tokens in continuations])
    logs = np.asarray(whole(apply)(params, sequences)).astype(float)
    found = {}
    for row, tokens in enumerate(continuations):
        steps = [logs[row, len(prompt) - 1 + t, token] for t, token in enumerate(tokens)]
        found |= {tokens[:length]: sum(steps[:length]) for length in range(1, num_tokens + 1)}
    return found


def test_wide_beams_are_exhaustive():
    """With as many beams as there are sequences the best of all that end is found, under every penalty.

    Without a stop token it is the likeliest of the full length.
    """
    vocab_size, num_tokens, stop = 3, 3, 2
    config = CONFIG.replace(vocab_size=vocab_size, num_layers=1)
    prompts, size = np.array([[0, 1], [1, 1]]), vocab_size**num_tokens
    penalties = [(0.0, False), (0.6, False), (1.0, False), (0.6, True)]
    lengths = set()
    logs_of = {
        (seed, row): every_sequence(language_model(config, seed), prompt, vocab_size, num_tokens)
        for seed in SEEDS
        for row, prompt in enumerate(prompts)
    }
    for alpha, gnmt in penalties:
        strategy = Beam(size, alpha, gnmt, early_stopping=False)
        for seed in SEEDS:
            got = decode(language_model(config, seed), prompts, strategy, num_tokens=num_tokens, stop=stop)
            for row in range(len(prompts)):
                logs = logs_of[seed, row]
                ending = [tokens for tokens in logs if tokens[-1] == stop and stop not in tokens[:-1]]
                best = max(ending, key=lambda tokens: logs[tokens] / penalty(strategy, len(tokens)))
                assert_found(got, row, best, logs[best])
                lengths.add((seed, row, len(best)))
    # The penalties do not agree.
    assert len(lengths) > len(prompts) * len(SEEDS)
    got = decode(language_model(config), prompts, Beam(size), num_tokens=num_tokens, stop=None)
    for row in range(len(prompts)):
        logs = logs_of[0, row]
        best = max((tokens for tokens in logs if len(tokens) == num_tokens), key=logs.__getitem__)
        assert_found(got, row, best, logs[best])


@pytest.mark.parametrize(
    ("choices", "early_stopping"),
    [
        ({"position": "alibi"}, True),
        ({"position": "alibi"}, False),
        ({"mixer.sparsity": "sliding_window(3)", "mixer.num_kv_heads": 2}, True),
        ({"mixer.sparsity": "sliding_window(3)", "mixer.num_kv_heads": 2}, False),
        ({"mixer.backend": "chunked(4)"}, False),
        ({"position": "forgetting", "mixer.normalizer": "sigmoid"}, False),
        ({"position": "contextual"}, False),
        ({"mixer.parts": ("short_convolution(3)",)}, False),
        ({"downsampling": "hourglass", "num_layers": 3, "position": "learned(std=0.4)"}, False),
    ],
    ids=str,
)
def test_beams_in_the_cache(choices, early_stopping):
    """Each of a batch of prompts gets what a plain search finds for it alone, whose beams are read anew each step.

    So a beam sees its own tokens alone, whatever reads them, and a search that is over waits for the others.
    """
    strategy, config = Beam(3, early_stopping=early_stopping), CONFIG.replace(choices)
    lengths = set()
    for seed in range(12):
        model = language_model(config, seed)
        got = decode(model, PROMPTS, strategy, lengths_B=jnp.asarray(LENGTHS))
        for row, length in enumerate(LENGTHS):
            assert_found(got, row, *plain_beam_search(model, PROMPTS[row, :length], strategy))
        lengths |= set(got.lengths_B.tolist())
    assert len(lengths) > 2


def test_early_stopping():
    """It ends the search at the first `size` finished sequences; without it a better one may come, never a worse."""
    better = []
    for seed in SEEDS:
        early, late = (
            decode(
                language_model(CONFIG.replace(position="alibi"), seed),
                PROMPTS,
                Beam(3, early_stopping=early),
                lengths_B=jnp.asarray(LENGTHS),
            )
            for early in (True, False)
        )
        better += [*(late.log_probability_B / late.lengths_B - early.log_probability_B / early.lengths_B)]
    assert min(better) > -1e-6
    assert max(better) > 1e-2


# Probabilities of tokens 1, 2 and 3, which ends, after tokens 0, 1 and 2; token 0 is only the first.
BIGRAMS = {
    0.0: [[0.8, 0.08, 0.12], [0.1, 0.6, 0.3], [0.2, 0.1, 0.7]],
    1.0: [[0.08, 0.8, 0.12], [0.1, 0.1, 0.8], [0.35, 0.25, 0.4]],
}


@pytest.mark.parametrize(
    ("alpha", "early", "tokens", "probability"),
    [
        (0.0, True, [1, 3], 0.24),
        (0.0, False, [1, 2, 3], 0.336),
        (1.0, True, [2, 3], 0.32),
        (1.0, False, [2, 1, 3], 0.224),
    ],
)
def test_a_search_ends_at_its_step(alpha, early, tokens, probability):
    """Two beams by hand: the first step finishes one sequence, the second a better one, the third the best.

    So any other end than after the second, or after the third where no better one can come, has another answer.
    """
    alone = {"num_layers": 1, "mixer": None, "norm": None, "position": None, "residual": NoNormResidual()}
    config = CONFIG.replace({"vocab_size": 4, "d_model": 4} | alone)
    params, apply = language_model(config)
    table = np.full((4, 4), 1e-9)
    table[:3, 1:] = BIGRAMS[alpha]
    params = jax.tree.map(jnp.zeros_like, params)
    params |= {"embedding": {"table": jnp.eye(4)}, "output": {"table": jnp.asarray(np.log(table).T, jnp.float32)}}
    strategy = Beam(2, alpha, early_stopping=early)
    got = decode((params, apply), [[0]], strategy, num_tokens=4, stop=3)
    assert_found(got, 0, tokens, np.log(probability))


@pytest.mark.parametrize(
    ("strategy", "live", "done", "settled"),
    [
        # Of four tokens at most: an unfinished sequence of log P -2 may come to have -2 / 4 a token.
        (Beam(2), -2.0, (-0.1, -0.55), False),
        (Beam(2), -2.0, (-0.1, -0.5), True),
        (Beam(2), -2.0, (-0.1, NEVER), False),
        (Beam(2, early_stopping=True), -2.0, (-0.1, -0.55), True),
        (Beam(2, early_stopping=True), -2.0, (-0.1, NEVER), False),
        (Beam(2, alpha=0.0), -2.0, (-0.1, -1.9), True),
        (Beam(2, alpha=0.0), -2.0, (-0.1, -2.1), False),
        (Beam(2, gnmt=True), -3.0, (-0.1, -1.9), True),
        (Beam(2, gnmt=True), -3.0, (-0.1, -2.1), False),
        (Beam(1), -2.0, (-9.0,), True),
        (Beam(1), -2.0, (NEVER,), False),
    ],
    ids=str,
)
def test_when_a_search_is_over(strategy, live, done, settled):
    """When no unfinished sequence can be ranked among the finished ones, or when there are enough of these."""
    shape, unread = (1, strategy.size), cast(Any, None)
    state = BeamState(*[unread] * len(BeamState._fields))._replace(
        live_tokens_BWT=jnp.zeros((*shape, 4), jnp.int32),
        live_scores_BW=jnp.full(shape, live),
        done_scores_BW=jnp.asarray([done]),
    )
    assert strategy.settled(state).tolist() == [settled]


def test_beams_of_an_encoder_decoder():
    """All beams of a target attend to its source, which may be padded: as each source alone, unpadded.

    The probability is the one of scoring.
    """
    own = {field.name: getattr(CONFIG, field.name) for field in dataclasses.fields(CONFIG)}
    config = EncoderDecoderConfig(**own, source_vocab_size=VOCAB, max_source_length=4)
    sources, lengths = np.random.default_rng(1).integers(0, VOCAB, (3, 4)), [4, 2, 4]
    inputs = {"source_BS": jnp.asarray(sources), "source_valid_BS": np.arange(4) < np.array(lengths)[:, None]}
    start, apply, found = np.ones((3, 1), int), None, set()
    for seed in SEEDS:
        params, made = split(EncoderDecoder(config, key=jax.random.key(seed)))
        apply = apply or made
        got = decode((params, apply), start, Beam(3), inputs=inputs)
        for row, length in enumerate(lengths):
            assert_found(got, row, *plain_beam_search((params, apply), [1], Beam(3), sources[row, :length]))
        found |= {(seed, *row) for row in got.tokens_BT.tolist()}
    assert len(found) > 2 * len(SEEDS)

    sequences = jnp.asarray(np.concatenate([start, got.tokens_BT], 1))
    weights = jnp.asarray(np.arange(TOKENS) < got.lengths_B[:, None], jnp.float32)
    score = jax.jit(functools.partial(sequence_log_probability, apply))
    valid = inputs["source_valid_BS"]
    scored = score(params, sequences, inputs["source_BS"], weights_BL=weights, source_valid_BS=valid)
    np.testing.assert_allclose(got.log_probability_B, scored, rtol=1e-5)


@pytest.mark.parametrize(("sparsity", "kept"), [("none", PROMPT), ("sliding_window(2)", 2)])
def test_beams_share_their_tokens(sparsity, kept):
    """The cache has one row for a sequence: the prompt once, and a slot for each token that a beam read."""
    params, apply = language_model(CONFIG.replace({"mixer.sparsity": sparsity}))
    state = Beam(3).start(Prompt(apply, params, jnp.asarray(PROMPTS), TOKENS, STOP, None, {}))
    slots = kept + 3 * (TOKENS - 1)
    assert state.cache.tokens.beams.shape == (len(PROMPTS), 3, slots)
    heads = CONFIG.mixer.num_heads
    shape = (len(PROMPTS) * heads, slots, CONFIG.d_model // heads)
    assert all(layer["attention"].values_XSK.shape == shape for layer in state.cache.layers)
    with pytest.raises(ValueError, match="cache: 2 tokens for 3 beams; each beam is continued by one"):
        apply(params, jnp.zeros((len(PROMPTS), 2), jnp.int32), state.cache, method="extend")
    cache = state.cache
    for step in range(TOKENS):
        logits, cache = apply(params, jnp.zeros((len(PROMPTS), 3), jnp.int32), cache, method="extend")
        assert np.isnan(logits).all() == np.isnan(logits).any() == (step == TOKENS - 1)


def test_a_search_by_hand_is_the_search():
    params, apply = language_model()
    beam, prompt = Beam(3), Prompt(apply, params, jnp.asarray(PROMPTS), TOKENS, STOP, None, {})
    state, step = beam.start(prompt), jax.jit(functools.partial(beam.step, prompt=prompt, read=prompt.reader()))
    while state.step < TOKENS and not beam.settled(state).all():
        state = step(state)
    found = program(apply, beam, TOKENS, STOP)(params, PROMPTS)
    ended_B = state.done_lengths_BW[:, 0] > 0
    assert ended_B.any()
    np.testing.assert_array_equal(found.tokens_BT[ended_B], state.done_tokens_BWT[ended_B, 0])
