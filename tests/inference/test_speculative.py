"""Speculative decoding: whatever the draft is, the continuations are those of the model alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Causal, Tokens
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.inference.processors import Forbidden, MinimumLength, NoRepeat, RepetitionPenalty
from transformer.inference.speculative import speculate
from transformer.inference.tokenwise import Greedy, Sample
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig
from transformer.models.early_exit import early_exit
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE

VOCAB, PROMPT, TOKENS, STOP = 5, 4, 9, 4
# Tokens that are read: all but the last one chosen. No table of positions is longer.
LENGTH = PROMPT + TOKENS - 1
# Large weights and no tied embeddings: what was read decides what is likely.
CONFIG = {
    "vocab_size": VOCAB,
    "max_length": LENGTH,
    "num_layers": 2,
    "d_model": 16,
    "mixer": Attention(num_heads=2),
    "feed_forward": FeedForward(d_ff=16, activation=ReLU()),
    "norm": RMSNorm(),
    "position": RoPE(),
    "initializer": Normal(0.4),
    "embedding": Embedding(initializer=Normal(0.4)),
    "head": Head(tied=False),
}
PROMPTS = np.random.default_rng(0).integers(0, VOCAB, (6, PROMPT))
LENGTHS = np.array([4, 1, 2, 3, 4, 1])
GREEDY = Greedy()
SOURCES = np.random.default_rng(1).integers(0, VOCAB, (6, 4))


def language_model(seed, **choices):
    return split(LanguageModel(ModelConfig(**CONFIG).replace(choices), key=jax.random.key(seed)))


def nearly(model, share):
    """Another model that often agrees: every number moved a little."""
    params, apply = model
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda a: a * jnp.asarray(1 + share * rng.normal(size=a.shape), a.dtype), params), apply


def run(
    function, *models, prompts=PROMPTS, strategy=GREEDY, num_tokens=TOKENS, stop=STOP, ahead=None, prefix=False, **more
):
    static = {"strategy": strategy, "num_tokens": num_tokens, "stop": stop, "prefix": prefix}
    static |= {} if ahead is None else {"ahead": ahead}

    def call(params, prompts, more):
        given = [argument for own, (_, apply) in zip(params, models, strict=True) for argument in (apply, own)]
        return function(*given, prompts, **static, **more)

    compiled = jax.jit(call)
    return jax.device_get(compiled([params for params, _ in models], jnp.asarray(prompts), more))


def assert_same(got, expected):
    np.testing.assert_array_equal(got.tokens_BT, expected.tokens_BT)
    np.testing.assert_array_equal(got.lengths_B, expected.lengths_B)
    np.testing.assert_allclose(got.log_probability_B, expected.log_probability_B, rtol=1e-4)


def fewest(lengths, ahead):
    """Rounds where every guess is right; the first token is the model's own."""
    return -(-(lengths - 1) // (ahead + 1))


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize(
    ("position", "sparsity"),
    [("learned(std=0.4)", "none"), ("alibi", "none"), ("rope", "sliding_window(3)")],
)
def test_greedy_is_greedy(position, sparsity, ahead):
    """With any draft, prompts of several lengths and a stop token: the tokens of the model, in fewer rounds.

    A rejected token leaves no trace in either cache, nor where it took the slot of one out of reach.
    """
    model = language_model(7, **{"position": position, "mixer.sparsity": sparsity})
    more = {"lengths_B": jnp.asarray(LENGTHS)}
    expected = run(generate, model, **more)
    assert len(set(expected.lengths_B.tolist())) > 1
    rounds = {}
    for name, draft in {"other": language_model(8, num_layers=1), "near": nearly(model, 0.2), "same": model}.items():
        got, rounds[name] = run(speculate, model, draft, ahead=ahead, **more)
        assert_same(got, expected)
    np.testing.assert_array_equal(rounds["same"], fewest(expected.lengths_B, ahead))
    assert (rounds["other"] <= expected.lengths_B - 1).all()
    assert rounds["same"].sum() < rounds["near"].sum() < rounds["other"].sum()


def test_parts_of_a_batch_on_devices():
    model, draft = language_model(7), language_model(8, num_layers=1)
    more = {"lengths_B": jnp.asarray(LENGTHS)}
    in_parts = functools.partial(speculate, mesh=jax.make_mesh((2,), ("data",)))
    (got, got_rounds), (expected, rounds) = (run(f, model, draft, **more) for f in (in_parts, speculate))
    assert_same(got, expected)
    np.testing.assert_array_equal(got_rounds, rounds)
    with pytest.raises(ConfigError, match="5 sequences cannot be divided by 2 devices"):
        run(in_parts, model, draft, prompts=PROMPTS[:5])


def test_greedy_of_an_encoder_decoder():
    """Both models read the source, which may be padded."""

    def encoder_decoder(seed):
        config = EncoderDecoderConfig(**CONFIG, source_vocab_size=VOCAB, max_source_length=4)
        return split(EncoderDecoder(config, key=jax.random.key(seed)))

    inputs = {"source_BS": SOURCES, "source_valid_BS": np.arange(4) < np.array([4, 2, 3, 4, 1, 4])[:, None]}
    model, start = encoder_decoder(7), np.ones((6, 1), int)
    more = {"prompts": start, "stop": None, "inputs": inputs}
    expected = run(generate, model, **more)
    got, rounds = run(speculate, model, nearly(model, 0.3), ahead=2, **more)
    assert_same(got, expected)
    assert fewest(expected.lengths_B, 2).sum() < rounds.sum() < (expected.lengths_B - 1).sum()


def test_prompts_that_see_all_of_themselves():
    """Of prefix models, as `generate` reads them; read from left to right they are continued in another way."""
    model, lengths = language_model(7), jnp.asarray(LENGTHS)
    expected, causal = (run(generate, model, lengths_B=lengths, prefix=prefix) for prefix in (True, False))
    got, rounds = run(speculate, model, nearly(model, 0.3), ahead=2, lengths_B=lengths, prefix=True)
    assert_same(got, expected)
    assert (rounds < expected.lengths_B).any()
    assert (expected.tokens_BT != causal.tokens_BT).any()


def test_processors():
    """Each guess is judged by what may follow all tokens before it, the guessed ones included."""
    processors = (RepetitionPenalty(1.5), NoRepeat(2), MinimumLength(5), Forbidden((1,)))
    model, more = language_model(7), {"strategy": Greedy(processors=processors), "lengths_B": jnp.asarray(LENGTHS)}
    expected = run(generate, model, **more)
    assert (expected.tokens_BT != run(generate, model, lengths_B=more["lengths_B"]).tokens_BT).any()
    for draft in (language_model(8), model):
        got, rounds = run(speculate, model, draft, ahead=3, **more)
        assert_same(got, expected)
    np.testing.assert_array_equal(rounds, fewest(expected.lengths_B, 3))


@pytest.mark.parametrize("strategy", [Sample(), Sample(0.7, top_k=3), Sample(processors=(NoRepeat(1),))], ids=str)
def test_the_law_of_samples(strategy):
    """Draws of three tokens have the frequencies that the model gives them, though the draft has others."""
    vocab_size, draws, num_tokens = 5, 20_000, 3
    model, draft = (language_model(seed, num_layers=1, vocab_size=vocab_size) for seed in (7, 8))
    drawing = {"prompts": np.repeat([[1, 2]], draws, 0), "num_tokens": num_tokens, "stop": None, "strategy": strategy}
    got, rounds = run(speculate, model, draft, ahead=2, key=jax.random.key(5), **drawing)
    assert 1 < rounds.mean() < 2
    exact = law_of(model, strategy, vocab_size, num_tokens)
    counts = np.bincount(got.tokens_BT @ [vocab_size**2, vocab_size, 1], minlength=len(exact))
    assert not counts[exact == 0].any()
    assert chisquare(counts[exact > 0], exact[exact > 0] * draws).pvalue > 0.01
    # The draft by itself would be found out.
    other = law_of(draft, strategy, vocab_size, num_tokens)
    assert chisquare(counts[other > 0], other[other > 0] * counts[other > 0].sum()).pvalue < 1e-6


def test_guesses_of_one_round_are_independent():
    """Of four tokens two are guesses of one round, all of which are kept; together they have the model's law."""
    model, draws = language_model(7, num_layers=1, vocab_size=3), 20_000
    drawing = {"prompts": np.repeat([[1, 2]], draws, 0), "num_tokens": 4, "stop": None, "strategy": Sample()}
    got, rounds = run(speculate, model, model, ahead=2, key=jax.random.key(5), **drawing)
    assert (rounds == 1).all()
    counts = np.bincount(got.tokens_BT @ [27, 9, 3, 1], minlength=81)
    assert chisquare(counts, law_of(model, Sample(), 3, 4) * draws).pvalue > 0.01


def law_of(model, strategy, vocab_size, num_tokens):
    """The probability of every continuation of [1, 2], in the order of its digits."""
    params, apply = model
    law, apply = np.ones(1), jax.jit(apply)
    for length in range(num_tokens):
        chosen = np.array(list(np.ndindex(*[vocab_size] * length)), np.int32).reshape(vocab_size**length, length)
        sequences = np.concatenate([np.repeat([[1, 2]], len(chosen), 0), chosen], 1)
        logits = np.asarray(apply(params, jnp.asarray(sequences)))[:, -1].copy()
        if strategy.processors:
            logits[np.arange(len(chosen))[:, None], sequences] = np.finfo(np.float32).min
        law = (law[:, None] * np.asarray(strategy.distribution(jnp.asarray(logits)))).reshape(-1)
    return law / law.sum()


def test_the_model_accepts_itself():
    """With the model as its own draft no guess is refused, and log P is that of scoring token by token."""
    model = language_model(7)
    key = jax.random.key(5)
    got, rounds = run(speculate, model, model, strategy=Sample(0.8, top_p=0.9), stop=None, ahead=3, key=key)
    np.testing.assert_array_equal(rounds, np.full(6, fewest(TOKENS, 3)))
    params, apply = model
    sequences = np.concatenate([PROMPTS, got.tokens_BT], 1)[:, :-1]
    logs = np.asarray(jax.nn.log_softmax(jax.jit(apply)(params, jnp.asarray(sequences))))[:, PROMPT - 1 :]
    chosen = np.take_along_axis(logs, got.tokens_BT[..., None], 2)[..., 0]
    np.testing.assert_allclose(got.log_probability_B, chosen.sum(1), rtol=1e-4)


@pytest.mark.parametrize("shared", [None, 2])
def test_the_first_layers_guess_for_all(shared):
    """Early exit of the model is its own draft; it computes what a model cut to these layers would."""
    choices = {"num_layers": 4, "distinct_layers": shared, "mixer.sparsity": SlidingWindow(3, sinks=1)}
    config = ModelConfig(**CONFIG).replace(choices)
    model = split(LanguageModel(config, key=jax.random.key(7)))
    draft = early_exit(config, model[0], 2)
    whole = LanguageModel(config, key=jax.random.key(7))
    tokens, places = jnp.asarray(PROMPTS), Tokens.at(jnp.arange(PROMPT))
    x = whole.embedding(tokens)
    for layer in range(2):
        x, _ = whole.blocks[layer](x, context=Context(places, Causal()), layer=layer, key=None)
    expected = whole.read_out(whole.final_norm(x))
    np.testing.assert_allclose(draft[1](draft[0], tokens), expected, rtol=1e-4, atol=1e-4)
    expected = run(generate, model)
    got, rounds = run(speculate, model, draft, ahead=2)
    assert_same(got, expected)
    assert rounds.sum() <= (expected.lengths_B - 1).sum()
    for layers in (0, 5):
        with pytest.raises(ConfigError, match=f"early_exit: {layers} layers of a model with 4"):
            early_exit(config, model[0], layers)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"num_tokens": 0}, "speculate: num_tokens 0 is not a positive number"),
        ({"ahead": 0}, "speculate: ahead 0 is not a positive number"),
        ({"stop": 99}, "speculate: stop 99 is not one of 5 tokens"),
        ({"strategy": Sample()}, "speculate: sample is random and needs a key"),
        ({"strategy": Beam(2)}, r"speculate: beam\(size=2\) does not choose token by token; use greedy or sample"),
        ({"num_tokens": TOKENS + 1}, f"{LENGTH + 1} tokens are more than max_length {LENGTH}"),
        ({"draft": {"vocab_size": 6}}, "speculate: vocabularies of 5 and 6 tokens differ"),
    ],
)
def test_what_cannot_be(choices, message):
    learned = {"position": "learned", "num_layers": 1}
    model, draft = language_model(7, **learned), language_model(8, **learned | choices.pop("draft", {}))
    with pytest.raises(ConfigError, match=message):
        run(speculate, model, draft, **choices)


@pytest.mark.parametrize(("prompt", "message"), [("to be", "a text"), (PROMPTS + 1, r"token 5 at \(\d, \d\) is")])
def test_what_is_no_prompt(prompt, message):
    """Said before anything is compiled."""
    params, apply = language_model(7)
    with pytest.raises(ConfigError, match=rf"^speculate: .*prompt .*{message}"):
        speculate(apply, params, apply, params, prompt, num_tokens=2)


def test_numbers_of_64_bits():
    """A carry of the loop keeps its type."""
    model, draft = language_model(7), language_model(8)
    expected, _ = run(speculate, model, draft)
    with jax.enable_x64(True):
        found, _ = run(speculate, model, draft)
    np.testing.assert_array_equal(found.tokens_BT, expected.tokens_BT)
