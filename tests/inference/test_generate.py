"""Decoding token by token: greedy and random choices, stop tokens, prompts of several lengths, exact probabilities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.attention import NEVER
from transformer.functional.masks import Causal, Prefix
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.inference.processors import Forbidden, NoRepeat
from transformer.inference.prompt import Prompt
from transformer.inference.scoring import sequence_log_probability
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import Greedy, Sample, TokenStrategy
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.heads import LatentHeads
from transformer.mixers.attention.sharing import SharedKeyValues
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.config import ModelConfig
from transformer.models.downsampling import Hourglass
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE

VOCAB, PROMPT, TOKENS, BATCH = 8, 5, 6, 3
# Tokens that are read: all but the last one chosen. No table of positions is longer.
LENGTH = PROMPT + TOKENS - 1
# Large weights and no tied embeddings: what was read decides what is likely, and nothing is repeated forever.
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
PROMPTS = np.random.default_rng(0).integers(0, VOCAB, (BATCH, PROMPT))
SOURCES = np.random.default_rng(1).integers(0, VOCAB, (BATCH, 4))
INPUTS = {"source_BS": SOURCES, "source_valid_BS": np.arange(4) < np.array([[4], [2], [3]])}
KEY, GREEDY = jax.random.key(5), Greedy()
MESH = jax.make_mesh((2,), ("data",))
# Greedy decoding of the language model below chooses it early, late and never.
STOP = 6


@functools.cache
def language_model(**choices):
    return split(LanguageModel(ModelConfig(**CONFIG).replace(choices), key=jax.random.key(7)))


@functools.cache
def encoder_decoder():
    more = {"source_vocab_size": VOCAB, "max_source_length": 4}
    return split(EncoderDecoder(EncoderDecoderConfig(**CONFIG | more), key=jax.random.key(8)))


@functools.cache
def program(apply, strategy, num_tokens, stop):
    run = functools.partial(generate, apply, num_tokens=num_tokens, strategy=strategy, stop=stop)
    return jax.jit(run)


def decode(model, prompts=PROMPTS, *, strategy=GREEDY, num_tokens=TOKENS, stop=None, **more):
    """`generate`, compiled once for every choice of strategy."""
    params, apply = model
    return jax.device_get(program(apply, strategy, num_tokens, stop)(params, jnp.asarray(prompts), **more))


@functools.cache
def whole(apply):
    return jax.jit(apply)


@functools.cache
def score(apply):
    return jax.jit(functools.partial(sequence_log_probability, apply))


def log_probabilities(model, sequences, sources=(), **more):
    """(B, L, V) of the next token after each, by one pass without a cache; sequences are padded to one shape."""
    params, apply = model
    sequences = np.asarray(sequences)[:, :LENGTH]
    padded = np.pad(sequences, ((0, 0), (0, LENGTH - sequences.shape[1])))
    return np.asarray(jax.nn.log_softmax(whole(apply)(params, *map(jnp.asarray, sources), jnp.asarray(padded), **more)))


def repeated_argmax(model, prompts, **more):
    """The most likely next token, again and again."""
    sequences = np.asarray(prompts)
    for _ in range(TOKENS):
        now = log_probabilities(model, sequences, **more)[:, sequences.shape[1] - 1]
        sequences = np.concatenate([sequences, now.argmax(-1)[:, None]], 1)
    return sequences[:, np.shape(prompts)[1] :]


def summed(logs, prompt_length, tokens, lengths):
    """log P of the first tokens of each continuation, by hand."""
    return [
        sum(logs[row, prompt_length - 1 + t, tokens[row, t]] for t in range(length))
        for row, length in enumerate(lengths)
    ]


@pytest.mark.parametrize("kind", ["language model", "encoder-decoder"])
def test_greedy_is_the_repeated_argmax(kind):
    """Decoding with a cache chooses what passes over the whole sequence choose, and knows its probability."""
    if kind == "language model":
        model, inputs, given = language_model(), {}, {}
    else:
        model, inputs = encoder_decoder(), {"inputs": INPUTS}
        given = {"sources": [SOURCES], "source_valid_BS": jnp.asarray(INPUTS["source_valid_BS"])}
    expected = repeated_argmax(model, PROMPTS, **given)
    got = decode(model, **inputs)
    np.testing.assert_array_equal(got.tokens_BT, expected)
    assert got.lengths_B.tolist() == [TOKENS] * BATCH
    logs = log_probabilities(model, np.concatenate([PROMPTS, expected], 1), **given)
    np.testing.assert_allclose(got.log_probability_B, summed(logs, PROMPT, expected, got.lengths_B), rtol=1e-5)
    # The comparison is of something: continuations differ, and no token is repeated all the time.
    assert len({tuple(row) for row in expected}) == BATCH
    assert min(len(set(row)) for row in expected.tolist()) > 1


def test_stop():
    """A sequence ends with its first stop token: 0 behind it, its length and its probability are those up to it.

    The others go on as if nothing had happened.
    """
    model = language_model()
    free = decode(model).tokens_BT
    logs = log_probabilities(model, np.concatenate([PROMPTS, free], 1))
    lengths = np.array([[*row, STOP].index(STOP) + 1 for row in free.tolist()]).clip(max=TOKENS)
    assert sorted(lengths) == [2, 5, TOKENS]
    got = decode(model, stop=STOP)
    np.testing.assert_array_equal(got.lengths_B, lengths)
    np.testing.assert_array_equal(got.tokens_BT, np.where(np.arange(TOKENS) < lengths[:, None], free, 0))
    np.testing.assert_allclose(got.log_probability_B, summed(logs, PROMPT, free, lengths), rtol=1e-5)


@pytest.mark.parametrize("strategy", [GREEDY, Sample()], ids=str)
def test_the_chain_rule(strategy):
    """log P of a continuation is the sum of its tokens' given all before them, whatever the strategy."""
    model = language_model()
    got = decode(model, strategy=strategy, stop=STOP, key=KEY)
    sequences = np.concatenate([PROMPTS, got.tokens_BT], 1)
    logs = log_probabilities(model, sequences)
    by_hand = summed(logs, PROMPT, got.tokens_BT, got.lengths_B)
    place = np.arange(1, LENGTH + 1)
    chosen = (place >= PROMPT) & (place < PROMPT + got.lengths_B[:, None])
    scored = score(model[1])(model[0], jnp.asarray(sequences), weights_BL=jnp.asarray(chosen, jnp.float32))
    np.testing.assert_allclose(scored, by_hand, rtol=1e-5)
    np.testing.assert_allclose(got.log_probability_B, by_hand, rtol=1e-5)
    everything = score(model[1])(model[0], jnp.asarray(sequences))
    np.testing.assert_allclose(everything, summed(logs, 1, sequences[:, 1:], [LENGTH] * BATCH), rtol=1e-5)


@pytest.mark.parametrize(("position", "sparsity"), [("learned(std=0.4)", "none"), ("rope", "sliding_window(3)")])
def test_prompts_of_several_lengths(position, sparsity):
    """A padded prompt is continued as if it were alone, whatever the padding is."""
    model = language_model(**{"position": position, "mixer.sparsity": sparsity})
    lengths = np.array([5, 1, 3])
    junk = np.where(np.arange(PROMPT) < lengths[:, None], PROMPTS, VOCAB - 1 - PROMPTS)
    together = decode(model, junk, lengths_B=jnp.asarray(lengths))
    for row, length in enumerate(lengths):
        alone = repeated_argmax(model, PROMPTS[row : row + 1, :length])
        np.testing.assert_array_equal(together.tokens_BT[row], alone[0])
        logs = log_probabilities(model, np.concatenate([PROMPTS[row : row + 1, :length], alone], 1))
        np.testing.assert_allclose(together.log_probability_B[row], *summed(logs, length, alone, [TOKENS]), rtol=1e-5)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"mixer.parts": (ShortConvolution(2),)},
        {"pattern": (Alternate("mixer.sharing", (None, SharedKeyValues())),)},
        {"mixer.heads": LatentHeads(4, 2)},
        {"strategy": Beam(3)},
    ],
    ids=str,
)
def test_a_cache_that_grows(choices, monkeypatch):
    """From 18 slots to 36, or for three beams, which fill three slots at once, from 24 to 49 and 98."""
    strategy = choices.get("strategy", GREEDY)
    params, apply = language_model(**{k: v for k, v in choices.items() if k != "strategy"}, max_length=40)
    made, loops = [], []
    for smallest in (18, 100):
        monkeypatch.setattr("transformer.inference.prompt.SMALLEST", smallest)

        def run(params, tokens_BL, lengths_B):
            return strategy.decode(Prompt(apply, params, tokens_BL, 32, STOP, lengths_B, {}), None)

        program = jax.jit(run).lower(params, PROMPTS, jnp.array([5, 2, 4]))
        loops.append(program.as_text().count("stablehlo.while"))
        made.append(program.compile()(params, PROMPTS, jnp.array([5, 2, 4])))
    assert loops[0] - loops[1] == (1 if strategy is GREEDY else 2)
    assert max(made[0].lengths_B) > 18
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), *made)


@pytest.mark.parametrize("strategy", [GREEDY, Beam(3), Sample()], ids=str)
def test_parts_of_a_batch_on_devices(strategy):
    """Each device continues its half as it would alone, with the key folded with its number."""
    params, apply = encoder_decoder()
    start = jnp.asarray(np.random.default_rng(3).integers(0, VOCAB, (4, 2)))
    source = jnp.asarray(np.random.default_rng(4).integers(0, VOCAB, (4, 4)))
    lengths = jnp.array([2, 1, 1, 2])
    run = functools.partial(generate, apply, num_tokens=TOKENS, strategy=strategy, stop=STOP)

    def half(rows, key):
        return run(params, start[rows], lengths_B=lengths[rows], inputs={"source_BS": source[rows]}, key=key)

    halves = [half(slice(2 * i, 2 * i + 2), jax.random.fold_in(KEY, i)) for i in range(2)]
    inputs = {"lengths_B": lengths, "inputs": {"source_BS": source}, "key": KEY}
    program = jax.jit(functools.partial(run, mesh=MESH)).lower(params, start, **inputs).compile()
    assert not any(word in program.as_text() for word in ("all-reduce", "all-gather", "all-to-all"))
    for name, values in program(params, start, **inputs)._asdict().items():
        expected = np.concatenate([getattr(half, name) for half in halves])
        np.testing.assert_allclose(values, expected, rtol=1e-5, err_msg=name)


def test_a_batch_that_devices_cannot_divide():
    params, apply = language_model()
    with pytest.raises(ConfigError, match="3 sequences cannot be divided by 2 devices"):
        generate(apply, params, jnp.ones((3, 2), jnp.int32), num_tokens=1, mesh=MESH)


def test_one_of_one_is_greedy():
    """Sampling from the most likely token alone is greedy decoding, at any temperature and with any key."""
    expected = decode(language_model(), stop=STOP)
    for key in (KEY, jax.random.key(6)):
        got = decode(language_model(), strategy=Sample(2.0, top_k=1), stop=STOP, key=key)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), got, expected)


# Tokens are not in the order of their probability.
PROBABILITIES = np.array([0.2, 0.4, 0.1, 0.3])
TIED = np.array([0.2, 0.4, 0.2, 0.2])
CUTS = [
    ("sample", PROBABILITIES, {0, 1, 2, 3}),
    ("sample(top_k=1)", PROBABILITIES, {1}),
    ("sample(top_k=2)", PROBABILITIES, {1, 3}),
    ("sample(top_k=4)", PROBABILITIES, {0, 1, 2, 3}),
    ("sample(top_k=1)", TIED, {1}),
    ("sample(top_k=2)", TIED, {0, 1, 2, 3}),
    ("sample(top_p=0.01)", PROBABILITIES, {1}),
    ("sample(top_p=0.39)", PROBABILITIES, {1}),
    ("sample(top_p=0.41)", PROBABILITIES, {1, 3}),
    ("sample(top_p=0.69)", PROBABILITIES, {1, 3}),
    ("sample(top_p=0.71)", PROBABILITIES, {0, 1, 3}),
    ("sample(top_p=0.91)", PROBABILITIES, {0, 1, 2, 3}),
    ("sample(top_p=1.0)", PROBABILITIES, {0, 1, 2, 3}),
    ("sample(min_p=0.01)", PROBABILITIES, {0, 1, 2, 3}),
    ("sample(min_p=0.26)", PROBABILITIES, {0, 1, 3}),
    ("sample(min_p=0.51)", PROBABILITIES, {1, 3}),
    ("sample(min_p=0.76)", PROBABILITIES, {1}),
    ("sample(min_p=1.0)", PROBABILITIES, {1}),
    # Of the two most likely, 4/7 and 3/7, the first has 0.55: a cut counts what the cut before it left.
    ("sample(top_k=2, top_p=0.55)", PROBABILITIES, {1}),
    ("sample(top_k=3, top_p=0.55)", PROBABILITIES, {1, 3}),
    ("sample(top_k=3, min_p=0.2)", PROBABILITIES, {0, 1, 3}),
    ("sample(top_p=0.91, min_p=0.51)", PROBABILITIES, {1, 3}),
    ("sample(top_k=3, top_p=0.8, min_p=0.7)", PROBABILITIES, {1, 3}),
    # Temperature comes first: at 1/2 the probabilities are 4, 16, 1, 9 of 30, at 2 they are nearer to each other.
    ("sample(temperature=0.5, top_p=0.5)", PROBABILITIES, {1}),
    ("sample(temperature=0.5, min_p=0.51)", PROBABILITIES, {1, 3}),
    ("sample(temperature=0.5, min_p=0.3)", PROBABILITIES, {1, 3}),
    ("sample(temperature=2, min_p=0.51)", PROBABILITIES, {0, 1, 3}),
    ("sample(temperature=2, top_p=0.41)", PROBABILITIES, {1, 3}),
]


def test_no_more_tokens_are_kept_than_there_are():
    with pytest.raises(ConfigError, match=r"^sample\.top_k: 9 is more than the 4 tokens that there are$"):
        Sample(top_k=9).cut(jnp.log(jnp.asarray(PROBABILITIES))[None])


def test_all_of_the_probability_is_all_tokens():
    """Whatever rounding makes of its sum."""
    logits = jnp.asarray(6 * np.random.default_rng(0).normal(size=(1, 50_257)), jnp.float32)
    np.testing.assert_array_equal(Sample(top_p=1.0).cut(logits), logits)


@pytest.mark.parametrize("text", ["sample", "sample(temperature=0.5, min_p=0.1)", "sample(top_k=2, top_p=0.9)"])
def test_where_every_token_is_forbidden_any_may_be_drawn(text):
    strategy, logits = Strategy.parse(text), jnp.full((4000, 4), NEVER)
    assert (np.bincount(strategy(logits, KEY), minlength=4) > 900).all()
    np.testing.assert_allclose(strategy.distribution(logits), 0.25)


@pytest.mark.parametrize(("text", "probabilities", "kept"), CUTS, ids=lambda value: value if type(value) is str else "")
def test_cuts(text, probabilities, kept):
    """Which tokens remain; their logits are those of the temperature, and each row is cut by itself."""
    strategy = Strategy.parse(text)
    logits = np.log(np.stack([probabilities, probabilities[::-1]])).astype(np.float32)
    cut = np.asarray(strategy.cut(jnp.asarray(logits)))
    for row, expected in ((0, kept), (1, {3 - token for token in kept})):
        assert {token for token in range(4) if cut[row, token] > NEVER} == expected
    np.testing.assert_array_equal(cut[cut > NEVER], (logits / np.float32(strategy.temperature))[cut > NEVER])


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("sample", [0.2, 0.4, 0.1, 0.3]),
        ("sample(temperature=0.5)", [4 / 30, 16 / 30, 1 / 30, 9 / 30]),
        ("sample(temperature=2)", np.sqrt(PROBABILITIES) / np.sqrt(PROBABILITIES).sum()),
        ("sample(top_k=2)", [0, 4 / 7, 0, 3 / 7]),
        ("sample(top_p=0.8)", [2 / 9, 4 / 9, 0, 3 / 9]),
        ("sample(temperature=0.5, min_p=0.5)", [0, 16 / 25, 0, 9 / 25]),
        ("greedy", [0, 1, 0, 0]),
    ],
)
def test_the_law_of_a_strategy(text, law):
    """Frequencies of many draws are within 4 standard deviations; what is cut off is never drawn."""
    draws, law = 100_000, np.array(law)
    logits = jnp.broadcast_to(jnp.log(jnp.asarray(PROBABILITIES, jnp.float32)), (draws, 4))
    tokens = Strategy.parse(text)(logits, KEY)
    assert tokens.dtype == jnp.int32
    frequencies = np.bincount(tokens, minlength=4) / draws
    assert (np.abs(frequencies - law) <= 4 * np.sqrt(law * (1 - law) / draws)).all()


def test_the_law_of_a_continuation():
    """Sampled pairs of tokens have the frequencies that scoring gives them: every draw is independent."""
    draws, model = 20_000, language_model(position="rope", num_layers=1, vocab_size=4)
    prompt = np.array([[1, 2]])
    got = decode(model, np.repeat(prompt, draws, 0), strategy=Sample(), num_tokens=2, key=KEY)
    pairs = np.stack(np.divmod(np.arange(16), 4), 1)
    law = np.exp(
        log_of_pairs := np.array(
            summed(log_probabilities(model, np.concatenate([prompt.repeat(16, 0), pairs], 1)), 2, pairs, [2] * 16)
        )
    )
    drawn = got.tokens_BT @ [4, 1]
    assert np.isclose(law.sum(), 1, rtol=1e-5)
    frequencies = np.bincount(drawn, minlength=16) / draws
    assert (np.abs(frequencies - law) <= 4 * np.sqrt(law * (1 - law) / draws)).all()
    np.testing.assert_allclose(got.log_probability_B, log_of_pairs[drawn], rtol=1e-5)


def test_randomness_is_that_of_the_key():
    """The same key gives the same tokens, another one others; a random strategy without one is an error."""
    model, strategy = language_model(), Sample()
    first, again = (decode(model, strategy=strategy, stop=STOP, key=KEY) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = decode(model, strategy=strategy, stop=STOP, key=jax.random.key(6))
    assert (other.tokens_BT != first.tokens_BT).any()
    for strategy in (Sample(), Sample(top_k=1)):
        with pytest.raises(ConfigError, match=r"generate: sample.* is random and needs a key"):
            decode(model, strategy=strategy)


@pytest.mark.parametrize("num_tokens", [0, -1, 2.5, "5", True])
def test_nothing_to_choose(num_tokens):
    """Said before the model is looked at."""
    with pytest.raises(ConfigError, match=f"generate: num_tokens {num_tokens!r} is not a positive number"):
        generate(print, {}, jnp.asarray(PROMPTS), num_tokens=num_tokens)


@pytest.mark.parametrize("stop", [2.5, True, [3, 4], "x"])
def test_an_end_is_one_token(stop):
    with pytest.raises(ConfigError, match=r"^generate: stop .* is not the number of one token$"):
        generate(print, {}, jnp.asarray(PROMPTS), num_tokens=2, stop=stop)
    with pytest.raises(ConfigError, match=r"^generate: mesh 'data' is no jax\.sharding\.Mesh$"):
        generate(print, {}, jnp.asarray(PROMPTS), num_tokens=2, mesh="data")


@pytest.mark.parametrize("stop", [-1, 99])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=str)
def test_a_stop_token_that_there_is_not(stop, strategy):
    with pytest.raises(ConfigError, match=rf"generate: stop {stop} is not one of \d+ tokens"):
        decode(language_model(), stop=stop, strategy=strategy)


@pytest.mark.parametrize(
    ("prompt", "changes", "message"),
    [
        (np.zeros(3, np.int32), {}, r"the prompt is \(3,\), not an array \(B, L\)"),
        ([[1, 2]], {}, "the prompt is list, not an array"),
        (PROMPTS, {"strategy": "beam"}, "the strategy 'beam' is no value such as"),
        (PROMPTS, {"strategy": Greedy(processors=Forbidden((3,)))}, r"greedy\.processors: Forbidden.* is not tuple"),
    ],
    ids=range(4),
)
def test_what_is_no_prompt_or_no_strategy(prompt, changes, message):
    with pytest.raises(ConfigError, match=message):
        generate(print, {}, prompt, num_tokens=1, **changes)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([0, 2], r"lengths_B 0 at \(0,\) is not in \[1, 5\)"),
        ([2, 9], r"lengths_B 9 at \(1,\) is not in \[1, 5\)"),
        ([1, 2, 3], r"lengths_B is \(3,\), not a length for each of 2 prompts"),
    ],
)
def test_lengths_that_prompts_do_not_have(lengths, message):
    """The program, which cannot look, is not run."""
    params, apply = language_model()
    with pytest.raises(ConfigError, match=message):
        generate(apply, params, jnp.ones((2, 4), jnp.int32), num_tokens=1, lengths_B=jnp.asarray(lengths))


def test_a_text_is_no_prompt():
    with pytest.raises(ConfigError, match=r"^generate: the prompt is a text, .*; encode it first, .*tokenizer\.encode"):
        generate(print, {}, "to be", num_tokens=1)


@pytest.mark.parametrize(
    ("kind", "prompts", "inputs", "message"),
    [
        ("decoder", (2, 0), {}, r"the prompt is \(2, 0\), an array without tokens"),
        ("decoder", (0, 1), {}, r"the prompt is \(0, 1\), an array without tokens"),
        ("decoder", (3, 1), INPUTS, "the model reads no input 'source_BS'"),
        ("both", (3, 1), {}, "the input source_BS is missing, which the model reads besides the prompt"),
        ("both", (3, 1), {"source": SOURCES}, "the model reads no input 'source'; did you mean 'source_BS'"),
        ("both", (6, 1), INPUTS, "3 sources for 6 prompts; each needs its own"),
        ("both", (1, 1), INPUTS, "3 sources for 1 prompts; each needs its own"),
    ],
)
def test_what_a_model_cannot_read(kind, prompts, inputs, message):
    params, apply = language_model() if kind == "decoder" else encoder_decoder()
    with pytest.raises(ConfigError, match=f"^(generate: |source_BS: ){message}"):
        generate(apply, params, jnp.ones(prompts, jnp.int32), num_tokens=2, inputs=inputs)
    if "own" in message:
        with pytest.raises(ConfigError, match=r"sources for . targets; each needs its own"):
            apply(params, SOURCES, jnp.ones(prompts, jnp.int32))


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=str)
@pytest.mark.parametrize("token", [-1, VOCAB])
def test_a_token_that_there_is_not(token, strategy):
    """In the prompt or in the source; the program, which cannot look, is not run."""
    wrong = jnp.asarray(PROMPTS).at[1, 3].set(token)
    how = {"num_tokens": 2, "strategy": strategy}
    params, apply = language_model()
    with pytest.raises(ConfigError, match=rf"^generate: prompt token {token} at \(1, 3\) is not in \[0, {VOCAB}\)$"):
        generate(apply, params, wrong, **how)
    params, apply = encoder_decoder()
    with pytest.raises(ConfigError, match=rf"^generate: source_BS token {token} at \(1, 3\) is not in \[0, {VOCAB}\)$"):
        generate(apply, params, jnp.asarray(PROMPTS[:, :1]), inputs=INPUTS | {"source_BS": np.asarray(wrong)}, **how)
    with pytest.raises(ConfigError, match=rf"^source token {token} at \(1, 3\)"):
        apply(params, wrong, jnp.asarray(PROMPTS))
    params, apply = language_model()
    with pytest.raises(ConfigError, match=rf"^sequence_log_probability: token {token} at \(0, 4\)"):
        sequence_log_probability(apply, params, jnp.asarray(PROMPTS).at[0, 4].set(token))


def test_longer_than_the_positions():
    """Every token that is read needs a position; the last one chosen is not read."""
    model = language_model(position="learned(std=0.4)")
    with pytest.raises(ConfigError, match=f"{LENGTH + 1} tokens are more than max_length {LENGTH}"):
        decode(model, num_tokens=TOKENS + 1)
    assert np.isfinite(decode(model, lengths_B=jnp.asarray([5, 1, 3])).log_probability_B).all()


PROCESSORS = (NoRepeat(2), Forbidden((1,)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("greedy", Greedy()),
        ("sample", Sample()),
        ("sample(temperature=0.7, top_k=5)", Sample(0.7, 5)),
        ("sample(top_p=0.9, min_p=0.1)", Sample(top_p=0.9, min_p=0.1)),
        ("sample(processors=[no_repeat(size=2), forbidden(tokens=(1,))])", Sample(processors=PROCESSORS)),
        ("beam", Beam()),
        ("beam(size=8, alpha=0.6, gnmt=True, early_stopping=True)", Beam(8, 0.6, True, True)),
    ],
)
def test_text(text, value):
    """A strategy has a text form that says what is not at its default."""
    assert Strategy.parse(text) == value
    assert str(value) == text
    assert isinstance(value, TokenStrategy) == (value.name != "beam")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sample(temperature=0)", "sample.temperature: 0.0 is less than 1e-06; greedy is its limit at 0"),
        ("sample(temperature=-1)", "sample.temperature: -1.0 is less than 1e-06"),
        ("sample(top_k=0)", "sample.top_k: 0 is not a positive number"),
        ("sample(top_p=0)", "sample.top_p: 0.0 is not in (0, 1]"),
        ("sample(top_p=1.1)", "sample.top_p: 1.1 is not in (0, 1]"),
        ("sample(min_p=0)", "sample.min_p: 0.0 is not in (0, 1]"),
        ("sample(min_p=2)", "sample.min_p: 2.0 is not in (0, 1]"),
        ("sample(top_k=0.5)", "sample.top_k: 0.5 is not int"),
        ("beam(size=0)", "beam.size: 0 is not a positive number"),
        ("beam(alpha=-0.1)", "beam.alpha: -0.1 is negative"),
        ("beam(1, 2, False, True, 5)", "strategy: beam takes 4 values, not 5"),
        ("greedy(processors=[no_repat])", "greedy.processors: unknown name 'no_repat'; did you mean 'no_repeat'?"),
        ("greedy(processors=[no_repeat(0)])", "no_repeat.size: 0 is not a positive number"),
        ("greedy(processors=[minimum_length(0)])", "minimum_length.length: 0 is not a positive number"),
        ("greedy(processors=[repetition_penalty(0)])", "repetition_penalty.penalty: 0.0 is not a positive number"),
        ("sample(temperature=inf)", "sample.temperature: inf is not a number"),
        ("bean", "strategy: unknown name 'bean'; did you mean 'beam'?"),
        ("sample(topk=1)", "sample has no field 'topk'; did you mean 'top_k'?"),
    ],
)
def test_wrong_values(text, message):
    """A strategy that cannot be is one line that says why."""
    with pytest.raises(ConfigError) as caught:
        Strategy.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("sparsity", [None, SlidingWindow(3)], ids=str)
def test_a_prompt_may_be_read_as_a_whole(sparsity):
    """In a prefix model every token of the prompt sees all of it: as without a cache, for prompts of two lengths."""
    params, apply = language_model(**{"mixer.sparsity": sparsity})
    lengths = np.array([PROMPT, PROMPT - 2, PROMPT])
    how = {"num_tokens": TOKENS, "lengths_B": jnp.asarray(lengths)}
    found, causal = (generate(apply, params, jnp.asarray(PROMPTS), prefix=p, **how) for p in (True, False))
    for i, length in enumerate(lengths):
        whole, log_probability = PROMPTS[i, :length], 0.0
        for _ in range(TOKENS):
            logits = apply(params, jnp.asarray(whole[None]), mask=Causal() | Prefix(int(length)))[0, -1]
            log_probability += float(jax.nn.log_softmax(logits).max())
            whole = np.append(whole, int(logits.argmax()))
        np.testing.assert_array_equal(found.tokens_BT[i], whole[length:])
        np.testing.assert_allclose(found.log_probability_B[i], log_probability, rtol=1e-4)
    assert np.abs(found.log_probability_B - causal.log_probability_B).max() > 1e-3


def test_the_start_of_a_target_may_be_read_as_a_whole():
    """The decoder of an encoder-decoder reads its prompt so, too; layers of fewer tokens do not."""
    params, apply = encoder_decoder()
    how = {"num_tokens": 2, "inputs": {name: jnp.asarray(value) for name, value in INPUTS.items()}}
    found, causal = (generate(apply, params, jnp.asarray(PROMPTS), prefix=p, **how) for p in (True, False))
    assert np.abs(found.log_probability_B - causal.log_probability_B).max() > 1e-3
    params, apply = language_model(downsampling=Hourglass(factor=2, last=0))
    with pytest.raises(ConfigError, match=r"is for tokens, and hourglass.* has fewer"):
        generate(apply, params, jnp.asarray(PROMPTS), num_tokens=2, prefix=True)
