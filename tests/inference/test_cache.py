"""The cache: a sequence that is read in pieces has the logits of the same sequence read at once."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config.activations import ReLU
from transformer.config.attention import FullReach, Merge, Projection, Reach, Scale, SlidingWindow
from transformer.config.implementations import AttentionImplementation, Chunked, Layers
from transformer.config.model import EncoderDecoderConfig, ModelConfig
from transformer.config.norms import Norm, RMSNorm
from transformer.config.parameters import Normal
from transformer.config.positions import Position, Sinusoidal2D
from transformer.config.residuals import Residual
from transformer.config.variant import ConfigError
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.language_model import LanguageModel
from transformer.models.pure import split

LENGTH, SPAN, VOCAB, HEADS = 10, 3, 8, 4
# The programs here are many and run once: less work on each.
QUICK = {"xla_backend_optimization_level": 0}
# Large weights and no tied embeddings: every token and every position matters.
SIZES = {"vocab_size": VOCAB, "max_length": LENGTH, "num_layers": 2, "d_model": 16, "num_heads": HEADS, "d_ff": 16}
LAWS = {"initializer": Normal(0.3), "embedding_initializer": Normal(0.3), "tie_embeddings": False}
CHEAP = {"norm": RMSNorm(), "activation": ReLU()}
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (2, LENGTH))

# Which tokens of each piece are real, for both sequences: first more than the window holds, then two
# at once, then one by one. In the second schedule the prompts differ in length and each sequence pauses.
PLAIN = [np.ones((2, width), bool) for width in (4, 2, 1, 1, 1, 1)]
PADDED = [
    np.array(rows, bool)
    for rows in ([[1, 1, 1, 1], [1, 1, 0, 0]], [[1, 1], [1, 0]], [[0], [1]], [[1], [1]], [[1], [0]], [[1], [1]])
]


def shipped(family):
    """The variants of a family that tokens can have, small."""
    small = {Chunked(): Chunked(block=2), SlidingWindow(): SlidingWindow(SPAN)}
    values = [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]
    return [small.get(value, value) for value in values if value != Sinusoidal2D()]


def pairwise(*families):
    """Combinations in which any two values of different families meet."""
    products = list(itertools.product(*(range(len(family)) for family in families)))
    pairs = {choice: set(itertools.combinations(enumerate(choice), 2)) for choice in products}
    chosen, missing = [], set().union(*pairs.values())
    while missing:
        chosen.append(max(products, key=lambda choice: len(pairs[choice] & missing)))
        missing -= pairs[chosen[-1]]
    return [tuple(family[i] for family, i in zip(families, choice, strict=True)) for choice in chosen]


def in_turn(**families):
    """As many choices as the largest family has values; the others start again."""
    count = max(map(len, families.values()))
    return [{name: values[i % len(values)] for name, values in families.items()} for i in range(count)]


def language_model(**choices):
    return split(LanguageModel(ModelConfig(**SIZES | LAWS | CHEAP | choices), key=jax.random.key(0)))


def encoder_decoder(**choices):
    more = {"source_vocab_size": VOCAB, "max_source_length": LENGTH}
    return split(EncoderDecoder(EncoderDecoderConfig(**SIZES | LAWS | CHEAP | more | choices), key=jax.random.key(0)))


def quickly(function, *arguments):
    return jax.device_get(jax.jit(function, compiler_options=QUICK)(*arguments))


def places(schedule):
    """The index of the token that each sequence reads in each place of the schedule; -1 is padding."""
    real = np.concatenate(schedule, 1)
    return np.where(real, real.cumsum(1) - 1, -1)


def read(apply, params, cache, schedule):
    """The logits of all pieces, side by side, and the cache behind them."""

    def extend(cache, piece):
        tokens, valid = piece
        padding = {} if schedule is PLAIN else {"valid_BL": valid}
        return apply(params, tokens, cache, method="extend", **padding)[::-1]

    # Padding is a token like any other, so that it would matter if it were seen.
    padded = np.concatenate([TOKENS, np.full((len(TOKENS), 1), VOCAB - 1)], 1)
    tokens = jnp.asarray(np.take_along_axis(padded, places(schedule), 1))
    ends = np.cumsum([valid.shape[1] for valid in schedule])
    pieces = [*zip(jnp.split(tokens, ends[:-1], 1), map(jnp.asarray, schedule), strict=True)]
    outputs = []
    for piece in pieces[:2]:
        cache, logits = extend(cache, piece)
        outputs.append(logits)
    cache, logits = jax.lax.scan(extend, cache, jax.tree.map(lambda *steps: jnp.stack(steps), *pieces[2:]))
    return jnp.concatenate([*outputs, *logits], 1), cache


def assert_same(got, expected):
    """Equal to 1e-5 of the largest."""
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def assert_pieces_are_the_whole(pieces, whole, schedule):
    """At every real token the same logits, which differ from token to token."""
    for row, index in enumerate(places(schedule)):
        assert_same(pieces[row, index >= 0], whole[row, index[index >= 0]])
    assert np.abs(np.diff(whole, axis=1)).max(-1).min() > 1e-3


def check(params, apply, schedule):
    """The pieces are the whole; the cache after them."""

    def run(params, tokens):
        pieces, cache = read(apply, params, apply(params, *tokens.shape, method="start"), schedule)
        return apply(params, tokens), pieces, cache

    whole, pieces, cache = quickly(run, params, TOKENS)
    assert_pieces_are_the_whole(pieces, whole, schedule)
    np.testing.assert_array_equal(cache.next_position_B, np.concatenate(schedule, 1).sum(1))
    return cache


COMBINATIONS = pairwise(*map(shipped, (Position, AttentionImplementation, Reach)), [1, 2, 4], ["plain", "padded"])


@pytest.mark.parametrize(("position", "attention", "reach", "num_kv_heads", "prompts"), COMBINATIONS, ids=str)
def test_pieces_are_the_whole(position, attention, reach, num_kv_heads, prompts):
    """A prompt, two tokens at once and single tokens have the logits of one pass; padding is as if it were not there.

    A cache has one slot per token, or only as many as the model looks back, and no more heads than keys have.
    """
    choices = {"position": position, "attention": attention, "reach": reach, "num_kv_heads": num_kv_heads}
    cache = check(*language_model(**choices), {"plain": PLAIN, "padded": PADDED}[prompts])
    assert cache.capacity == (reach.span or LENGTH)
    for layer in cache.layers:
        assert {array.shape[:3] for array in layer} == {(2, cache.capacity, num_kv_heads)}


VARIANTS = in_turn(
    residual=shipped(Residual),
    projection=shipped(Projection),
    merge=shipped(Merge),
    scale=shipped(Scale),
    layers=shipped(Layers),
    norm=[norm for norm in shipped(Norm) if not norm.mixes_tokens],
)


@pytest.mark.parametrize("choices", VARIANTS, ids=lambda choices: "-".join(map(str, choices.values())))
def test_every_choice_has_a_cache(choices):
    """Residuals, projections, merges, scales, layers and norms are the same in pieces."""
    check(*language_model(position=Position.parse("rope"), **choices), PADDED)


def test_every_switch_has_a_cache():
    """Biases, a scaled positional bias, scaled and tied embeddings."""
    biases = {"attention_bias": ("query", "key", "value", "out"), "feed_forward_bias": True}
    switches = {"scale_bias": True, "scale_embeddings": True, "tie_embeddings": True}
    check(*language_model(position=Position.parse("alibi"), **biases, **switches), PLAIN)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("reach", shipped(Reach), ids=str)
def test_a_cache_can_be_carried_by_a_loop(reach, dtype):
    """Extending leaves every shape and dtype as it is; keys and values have the compute dtype, logits float32."""
    params, apply = language_model(reach=reach, dtype=dtype)
    start = jax.eval_shape(lambda params: apply(params, 2, LENGTH, method="start"), params)
    for width in (1, 4):
        logits, cache = jax.eval_shape(
            lambda params, cache, width=width: apply(params, jnp.zeros((2, width), jnp.int32), cache, method="extend"),
            params,
            start,
        )
        assert jax.tree.map(lambda a: (a.shape, a.dtype), cache) == jax.tree.map(lambda a: (a.shape, a.dtype), start)
        assert {array.dtype for array in jax.tree.leaves(cache.layers)} == {jnp.dtype(dtype)}
        assert logits.dtype == jnp.float32


SOURCES = np.random.default_rng(1).integers(0, VOCAB, (2, 5))
SOURCE_VALID = np.arange(5) < np.array([[5], [3]])
SELF_ATTENTION = in_turn(
    attention=shipped(AttentionImplementation),
    reach=shipped(Reach)[::-1],
    num_kv_heads=[2, 4],
    schedule=[PLAIN, PADDED],
)


@pytest.mark.parametrize("choices", SELF_ATTENTION, ids=lambda choices: f"{choices['attention']}-{choices['reach']}")
def test_the_source_is_read_once(choices):
    """Target in pieces = target at once; what `start` remembers of a padded source is all that is needed of it.

    After it the encoder and the projections of the source may be anything.
    """
    schedule = choices["schedule"]
    params, apply = encoder_decoder(**{name: value for name, value in choices.items() if name != "schedule"})
    cross = params["decoder"]["blocks"]["layer"]["cross_attention"]
    unneeded = [params["encoder"], params["source_embedding"], cross["key"], cross["value"]]
    gone = {id(leaf) for leaf in jax.tree.leaves(unneeded)}
    rest = jax.tree.map(lambda leaf: leaf * jnp.nan if id(leaf) in gone else leaf, params)
    assert 0 < len(gone) < len(jax.tree.leaves(params))

    def run(params, rest, tokens, sources, valid):
        cache = apply(params, *tokens.shape, sources, valid, method="start")
        pieces, after = read(apply, rest, cache, schedule)
        return apply(params, sources, tokens, source_valid_BS=valid), pieces, (cache.memory, after.memory)

    whole, pieces, (before, after) = quickly(run, params, rest, TOKENS, SOURCES, SOURCE_VALID)
    assert_pieces_are_the_whole(pieces, whole, schedule)
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_past_the_capacity():
    """A token without a slot has no logits but NaN; a ring goes on and is still right."""
    for reach, capacity, good in ((FullReach(), 4, 4), (SlidingWindow(6), 4, 4), (SlidingWindow(SPAN), 4, LENGTH)):
        params, apply = language_model(position=Position.parse("rope"), reach=reach)

        def run(params, tokens, apply=apply, capacity=capacity):
            def step(cache, token_B):
                return apply(params, token_B[:, None], cache, method="extend")[::-1]

            _, steps = jax.lax.scan(step, apply(params, len(tokens), capacity, method="start"), tokens.T)
            return apply(params, tokens), jnp.concatenate([*steps], 1)

        whole, steps = quickly(run, params, TOKENS)
        assert_same(steps[:, :good], whole[:, :good])
        assert np.isnan(steps[:, good:]).all()


def test_past_the_positions():
    """A cache longer than a table of positions is refused when it is made; other positions go on."""
    params, apply = language_model(position=Position.parse("learned"))
    with pytest.raises(
        ConfigError, match=f"{LENGTH + 1} tokens are more than max_length {LENGTH}, and position learned"
    ):
        apply(params, 1, LENGTH + 1, method="start")
    assert apply(params, 1, LENGTH, method="start").capacity == LENGTH
    params, apply = language_model(position=Position.parse("rope"))
    assert apply(params, 1, LENGTH + 1, method="start").capacity == LENGTH + 1


def test_an_encoder_has_no_cache():
    """What sees later tokens cannot be read in pieces."""
    params, apply = language_model(causal=False)
    with pytest.raises(ConfigError, match="only a causal model has a cache"):
        apply(params, 1, LENGTH, method="start")
