"""Beam search against greedy decoding, exhaustive search, and a plain search without a cache."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config.model import EncoderDecoderConfig, ModelConfig
from transformer.config.norms import NoNorm
from transformer.config.parameters import Constant, Normal
from transformer.config.positions import NoPosition, RoPE
from transformer.config.residuals import NoNormResidual
from transformer.inference.generate import generate
from transformer.inference.scoring import sequence_log_probability
from transformer.inference.strategies import Beam
from transformer.models.build import build
from transformer.models.pure import split

V, STOP = 4, 2
LAW = {"initializer": Normal(0.4), "embedding_initializer": Normal(0.4)}
SIZES = {"vocab_size": V, "num_layers": 1, "d_model": 16, "num_heads": 2, "position": RoPE(), "max_length": 16, **LAW}
PROMPTS = jnp.asarray([[0, 1], [3, 3], [1, 0]], jnp.int32)


def model(seed):
    return split(build(ModelConfig(**SIZES), key=jax.random.key(seed)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("stop", [None, STOP])
def test_a_beam_of_one_is_greedy(seed, stop):
    """Tokens, lengths and log-probabilities."""
    params, apply = model(seed)
    beam = generate(apply, params, PROMPTS, num_tokens=6, strategy=Beam(1), stop=stop)
    greedy = generate(apply, params, PROMPTS, num_tokens=6, stop=stop)
    np.testing.assert_array_equal(beam.tokens_BT, greedy.tokens_BT)
    np.testing.assert_array_equal(beam.lengths_B, greedy.lengths_B)
    np.testing.assert_allclose(beam.log_probability_B, greedy.log_probability_B, rtol=1e-5)


def sequences(length):
    """All continuations that end with the end token, up to `length` tokens."""
    others = [t for t in range(V) if t != STOP]
    return [(*body, STOP) for n in range(length) for body in itertools.product(others, repeat=n)]


@pytest.mark.parametrize(
    "beam", [Beam(64, 0.0, False, False), Beam(64, 0.6, True, False), Beam(64, 1.0, False, False)], ids=str
)
def test_a_beam_as_wide_as_the_tree_is_exhaustive_search(beam):
    """The best of all finished sequences of up to three tokens, by log-probability over penalty."""
    params, apply = model(5)
    made = generate(apply, params, PROMPTS, num_tokens=3, strategy=beam, stop=STOP)
    endings = sequences(3)
    lengths = np.array([len(s) for s in endings])
    padded = np.array([(*s, 0, 0)[:3] for s in endings])
    weights = np.concatenate([np.zeros((len(endings), 1)), np.arange(3) < lengths[:, None]], 1).astype(np.float32)
    score = jax.jit(lambda tokens: sequence_log_probability(apply, params, tokens, weights_BL=weights))
    for row, prompt in enumerate(np.asarray(PROMPTS)):
        log_p = score(np.concatenate([np.tile(prompt, (len(endings), 1)), padded], 1))
        scores = np.asarray(log_p / beam.penalty(jnp.asarray(lengths)))
        best = int(scores.argmax())
        assert tuple(made.tokens_BT[row, : made.lengths_B[row]].tolist()) == endings[best]
        given = made.log_probability_B[row] / beam.penalty(made.lengths_B[row])
        np.testing.assert_allclose(given, scores[best], rtol=1e-4)


def plain_search(logits_of, prompt, size, count):
    """The best beginning of `count` tokens among `size` at each step, without an end, a cache or a batch."""
    log_probabilities = jax.jit(lambda tokens: jax.nn.log_softmax(logits_of(tokens)[0]))
    beams = [((), 0.0)]
    for _ in range(count):
        grown = []
        for tokens, score in beams:
            read = [*prompt, *tokens]
            padded = np.array([[*read, *[0] * (len(prompt) + count - len(read))]])
            log_p = np.asarray(log_probabilities(padded)[len(read) - 1])
            grown += [((*tokens, t), score + float(log_p[t])) for t in range(V)]
        beams = sorted(grown, key=lambda b: -b[1])[:size]
    return beams[0]


@pytest.mark.parametrize("seed", range(2))
def test_beams_are_reordered_in_the_cache(seed):
    """A batch of searches with a cache finds what a plain search by whole forward passes finds."""
    params, apply = model(seed)
    made = generate(apply, params, PROMPTS, num_tokens=5, strategy=Beam(3))
    for row, prompt in enumerate(PROMPTS):
        tokens, score = plain_search(lambda t: apply(params, t), prompt.tolist(), 3, 5)
        assert tuple(made.tokens_BT[row].tolist()) == tokens
        np.testing.assert_allclose(made.log_probability_B[row], score, rtol=1e-4)


def test_translations_keep_their_own_source():
    """Beams of sentences with padded sources, together and each alone by a plain search."""
    config = EncoderDecoderConfig(**SIZES, source_vocab_size=6, max_source_length=8)
    params, apply = split(build(config, key=jax.random.key(2)))
    source, valid = jnp.asarray([[1, 5, 3, 0], [4, 5, 1, 2]]), jnp.asarray([[True] * 3 + [False], [True] * 4])
    start = jnp.ones((2, 1), jnp.int32)
    inputs = {"source_BS": source, "source_valid_BS": valid}
    made = generate(apply, params, start, num_tokens=4, strategy=Beam(3), inputs=inputs)
    for row, length in ((0, 3), (1, 4)):
        own = source[row : row + 1, :length]
        tokens, _ = plain_search(lambda t, own=own: apply(params, own, t), [1], 3, 4)
        assert tuple(made.tokens_BT[row].tolist()) == tokens


def markov_chain(transitions):
    """A language model whose next token depends on the last one alone: blocks that do nothing between two tables."""
    config = ModelConfig(
        **{**SIZES, "d_model": V, "num_heads": 1, "position": NoPosition(), "initializer": Constant(0.0)},
        norm=NoNorm(),
        residual=NoNormResidual(),
        tie_embeddings=False,
    )
    params, apply = split(build(config, key=jax.random.key(0)))
    tables = {"embedding": {"table": jnp.eye(V)}, "output": {"table": jnp.log(jnp.asarray(transitions)).T}}
    return params | tables, apply


def test_early_stopping_takes_the_first_that_are_finished():
    """Two sequences end within two steps; a later end is ranked higher, and is found only without early stopping."""
    params, apply = markov_chain(
        [[0.01, 0.5, 0.4, 0.09], [0.01, 0.75, 0.2, 0.04], [0.25] * 4, [0.02, 0.02, 0.95, 0.01]]
    )
    start = jnp.zeros((1, 1), jnp.int32)
    early, late = (
        generate(apply, params, start, num_tokens=8, strategy=Beam(2, 3.0, early_stopping=e), stop=STOP)
        for e in (True, False)
    )
    assert early.tokens_BT[0, : early.lengths_B[0]].tolist() in ([2], [1, 2])
    assert late.tokens_BT[0].tolist() == [1] * 7 + [STOP]
    np.testing.assert_allclose(late.log_probability_B[0], np.log(0.5 * 0.75**6 * 0.2), rtol=1e-5)
