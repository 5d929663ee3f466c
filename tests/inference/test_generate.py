"""Decoding token by token: what is chosen, when it stops, and that neither padding nor company matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config.model import EncoderDecoderConfig, ModelConfig
from transformer.config.parameters import Normal
from transformer.config.positions import RoPE
from transformer.config.variant import ConfigError
from transformer.inference.generate import generate
from transformer.inference.scoring import sequence_log_probability
from transformer.inference.strategies import NEVER, Beam, Greedy, Sample, Strategy
from transformer.models.build import build
from transformer.models.pure import split

LAW = {"initializer": Normal(0.3), "embedding_initializer": Normal(0.3)}
SIZES = {"vocab_size": 7, "num_layers": 2, "d_model": 16, "num_heads": 2, "position": RoPE(), "max_length": 32, **LAW}
PARAMS, APPLY = split(build(ModelConfig(**SIZES), key=jax.random.key(0)))
PROMPTS = jnp.asarray(np.random.default_rng(0).integers(0, 7, (4, 3)), jnp.int32)


def continued(apply, params, prompt, count, *inputs):
    """The most likely token again and again, by whole forward passes."""
    tokens = prompt
    for _ in range(count):
        best = apply(params, *inputs, tokens)[:, -1].argmax(-1)
        tokens = jnp.concatenate([tokens, best[:, None].astype(jnp.int32)], 1)
    return tokens[:, prompt.shape[1] :]


def test_greedy_is_the_most_likely_token_again_and_again():
    """With a cache as without."""
    made = generate(APPLY, PARAMS, PROMPTS, num_tokens=8)
    np.testing.assert_array_equal(made.tokens_BT, continued(APPLY, PARAMS, PROMPTS, 8))
    np.testing.assert_array_equal(made.lengths_B, 8)


def test_greedy_translation():
    """The same with a source of which a part is padding."""
    config = EncoderDecoderConfig(**SIZES, source_vocab_size=7, max_source_length=8)
    params, apply = split(build(config, key=jax.random.key(1)))
    source, valid = jnp.asarray([[1, 2, 3, 0], [4, 5, 6, 2]]), jnp.asarray([[True] * 3 + [False], [True] * 4])
    start = jnp.ones((2, 1), jnp.int32)
    made = generate(apply, params, start, num_tokens=6, inputs={"source_BS": source, "source_valid_BS": valid})
    for row, length in ((0, 3), (1, 4)):
        alone = continued(apply, params, start[:1], 6, source[row : row + 1, :length])
        np.testing.assert_array_equal(made.tokens_BT[row], alone[0])


def test_the_end_token_ends_a_sequence():
    """Behind it there are zeros; the length counts it, and so does the log-probability, by the chain rule."""
    free = np.asarray(generate(APPLY, PARAMS, PROMPTS, num_tokens=8).tokens_BT)
    stop = int(free[0, 2])
    made = generate(APPLY, PARAMS, PROMPTS, num_tokens=8, stop=stop)
    for row, tokens in enumerate(free):
        ends = np.flatnonzero(tokens == stop)
        length = int(ends[0]) + 1 if len(ends) else 8
        assert made.lengths_B[row] == length
        np.testing.assert_array_equal(made.tokens_BT[row], np.where(np.arange(8) < length, tokens, 0))
    whole = jnp.concatenate([PROMPTS, made.tokens_BT], 1)
    weights = (jnp.arange(1, 11) >= 3) & (jnp.arange(1, 11) < 3 + made.lengths_B[:, None])
    scored = sequence_log_probability(APPLY, PARAMS, whole, weights_BL=weights.astype(jnp.float32))
    np.testing.assert_allclose(made.log_probability_B, scored, rtol=1e-5)


def test_the_chain_rule():
    """The log-probability of a sequence is the sum of those of its tokens, one forward pass for each."""
    tokens = PROMPTS[:1]
    by_hand = sum(
        float(jax.nn.log_softmax(APPLY(PARAMS, tokens[:, :t])[0, -1])[int(tokens[0, t])])
        for t in range(1, tokens.shape[1])
    )
    np.testing.assert_allclose(sequence_log_probability(APPLY, PARAMS, tokens)[0], by_hand, rtol=1e-5)


def test_all_continuations_have_probability_one():
    """Σ P(x₁ x₂ | x₀) over the whole tree."""
    tree = jnp.stack(jnp.meshgrid(jnp.asarray([3]), jnp.arange(7), jnp.arange(7)), -1).reshape(-1, 3)
    np.testing.assert_allclose(jnp.exp(sequence_log_probability(APPLY, PARAMS, tree)).sum(), 1.0, rtol=1e-5)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=str)
def test_prompts_of_several_lengths(strategy):
    """A batch of padded prompts is continued as each prompt alone."""
    lengths = jnp.asarray([3, 1, 2, 3])
    together = generate(APPLY, PARAMS, PROMPTS, num_tokens=5, lengths_B=lengths, strategy=strategy, stop=2)
    for row, length in enumerate(lengths):
        alone = generate(APPLY, PARAMS, PROMPTS[row : row + 1, :length], num_tokens=5, strategy=strategy, stop=2)
        np.testing.assert_array_equal(together.tokens_BT[row], alone.tokens_BT[0])
        np.testing.assert_allclose(together.log_probability_B[row], alone.log_probability_B[0], rtol=1e-5)


def test_one_candidate_is_greedy():
    """Sampling among the one most likely token."""
    sampled = generate(APPLY, PARAMS, PROMPTS, num_tokens=6, strategy=Sample(top_k=1), key=jax.random.key(3))
    np.testing.assert_array_equal(sampled.tokens_BT, generate(APPLY, PARAMS, PROMPTS, num_tokens=6).tokens_BT)


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [
        (Sample(), [1, 1, 1, 1]),
        (Sample(top_k=2), [1, 1, 0, 0]),
        (Sample(top_k=9), [1, 1, 1, 1]),
        (Sample(top_p=0.5), [1, 0, 0, 0]),
        (Sample(top_p=0.51), [1, 1, 0, 0]),
        (Sample(top_p=0.8), [1, 1, 1, 0]),
        (Sample(min_p=0.5), [1, 1, 0, 0]),
        (Sample(min_p=0.3), [1, 1, 1, 0]),
        (Sample(top_k=3, min_p=0.45), [1, 1, 0, 0]),
        (Sample(temperature=0.5, top_p=0.72), [1, 0, 0, 0]),
    ],
    ids=str,
)
def test_cuts(strategy, kept):
    """Which of four tokens of probability 0.5, 0.25, 0.16 and 0.09 remain."""
    logits = jnp.log(jnp.asarray([[0.5, 0.25, 0.16, 0.09]]))
    np.testing.assert_array_equal(strategy.cut(logits)[0] > NEVER, np.asarray(kept, bool))


def test_samples_have_the_distribution_of_the_model():
    """20,000 draws at temperature 2."""
    logits = jnp.log(jnp.asarray([0.5, 0.25, 0.16, 0.09]))
    draws = Sample(temperature=2.0)(jnp.tile(logits, (20_000, 1)), jax.random.key(0))
    expected = np.sqrt([0.5, 0.25, 0.16, 0.09])
    np.testing.assert_allclose(np.bincount(draws) / 20_000, expected / expected.sum(), atol=0.012)


def test_random_strategies_need_a_key():
    """There is no hidden seed."""
    with pytest.raises(ConfigError, match="sample is random and needs a key"):
        generate(APPLY, PARAMS, PROMPTS, num_tokens=2, strategy=Sample())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sample(temperature=0)", "sample.temperature: 0.0 is not positive"),
        ("sample(top_k=0)", "sample.top_k: 0 is not"),
        ("sample(top_p=1.5)", r"sample.top_p: 1.5 is not in \(0, 1\]"),
        ("beam(size=0)", "beam.size: 0 is not"),
        ("beam(alpha=-1)", "beam.alpha: -1.0 is negative"),
        ("greddy", "did you mean 'greedy'"),
    ],
)
def test_strategies_that_cannot_be(text, message):
    """One line."""
    with pytest.raises(ConfigError, match=message):
        Strategy.parse(text)
