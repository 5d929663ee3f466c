"""The cache: a sequence that is read in pieces has the logits of the same sequence read at once.

Which position the model has is a traced number where all are tried, so that one compiled program serves all.
"""

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import ZEROS, Normal, Parameter
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.cache import slots_of
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked, Fused
from transformer.mixers.attention.base import Backend, Merge, Projection, Scale, Sparsity
from transformer.mixers.attention.heads import LatentHeads
from transformer.mixers.attention.projections import NoProjections, SumHeads
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.mixers.attention.sparsity import (
    BigBird,
    DilatedWindow,
    Fixed,
    GlobalTokens,
    LocalBlocks,
    SlidingWindow,
    Strided,
)
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate
from transformer.models.stack import Layers
from transformer.norms.norm import Norm, RMSNorm
from transformer.positions.absolute import Learned, Sinusoidal2D, StepSinusoidal
from transformer.positions.contextual import Contextual, Forgetting
from transformer.positions.position import Position
from transformer.positions.relative import RelativeKeys
from transformer.residuals.residual import Residual
from transformer.testing.subject import shaken

LENGTH, CAPACITY, SPAN, VOCAB = 8, 16, 3, 8
# Large weights and no tied embeddings: every token and every position matters.
SIZES = {"vocab_size": VOCAB, "max_length": CAPACITY, "num_layers": 2, "d_model": 16}
LAWS = {"initializer": Normal(0.3), "embedding": Embedding(initializer=Normal(0.3)), "head": Head(tied=False)}
CHEAP = {"norm": RMSNorm(), "mixer": Attention(num_heads=4), "feed_forward": FeedForward(d_ff=16, activation=ReLU())}
MODEL = ModelConfig(**SIZES | LAWS | CHEAP)
TRANSLATOR = EncoderDecoderConfig(**SIZES | LAWS | CHEAP, source_vocab_size=VOCAB, max_source_length=5)
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (2, LENGTH))

# Which tokens of each piece are real, for both sequences. Plain: two at once, then one by one. Padded: pieces
# longer than the window, prompts that are not of one length, and a pause.
PLAIN = [np.ones((2, width), bool) for width in (2, 2, 1, 1, 1, 1)]
PADDED = [np.arange(4) < np.array(lengths)[:, None] for lengths in ([4, 2], [2, 3], [0, 1], [1, 1])]
SCHEDULES = {"plain": PLAIN, "padded": PADDED}


def shipped(family):
    """The variants of a family that tokens can have, in sizes that matter here."""
    small = {Chunked(): Chunked(block=2), SlidingWindow(): SlidingWindow(SPAN), Learned(): Learned(std=0.3)}
    small |= {DilatedWindow(): DilatedWindow(2), LocalBlocks(): LocalBlocks(2, neighbours=1), Strided(): Strided(3)}
    small |= {Fixed(): Fixed(3, summary=1), GlobalTokens(): GlobalTokens(2, first=1), BigBird(): BigBird(2)}
    values = [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]
    causal = [value for value in values if not getattr(value, "mixes_tokens", False)]
    return [small.get(value, value) for value in causal if value != Sinusoidal2D()]


def or_none(family):
    """Nothing, or a variant of the family."""
    return [None, *shipped(family)]


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
    return split(LanguageModel(MODEL.replace(choices), key=jax.random.key(0)))


def encoder_decoder(**choices):
    return split(EncoderDecoder(TRANSLATOR.replace(choices), key=jax.random.key(0)))


def quickly(function, *arguments):
    return jax.device_get(jax.jit(function)(*arguments))


def places(schedule):
    """The index of the token that each sequence reads in each place of the schedule; -1 is padding."""
    real = np.concatenate(schedule, 1)
    return np.where(real, real.cumsum(1) - 1, -1)


def read(apply, params, cache, schedule):
    """The logits of all pieces, side by side, and the cache behind them."""

    def extend(cache, piece):
        tokens, valid = piece
        return apply(params, tokens, cache, method="extend", **{} if schedule is PLAIN else {"valid_BL": valid})[::-1]

    # Padding is a token like any other, so that it would matter if it were seen.
    padded = np.concatenate([TOKENS, np.full((len(TOKENS), 1), VOCAB - 1)], 1)
    tokens = jnp.asarray(np.take_along_axis(padded, places(schedule), 1))
    outputs, at = [], 0
    for width, group in itertools.groupby(schedule, lambda valid: valid.shape[1]):
        valid = jnp.stack([*group])
        pieces = jnp.stack([tokens[:, at + i * width : at + (i + 1) * width] for i in range(len(valid))])
        cache, logits = jax.lax.scan(extend, cache, (pieces, valid))
        at += len(valid) * width
        outputs += [*logits]
    return jnp.concatenate(outputs, 1), cache


def assert_same(got, expected):
    """Equal to 1e-5 of the largest."""
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def assert_pieces_are_the_whole(pieces, whole, schedule):
    """At every real token the same logits, which differ from token to token."""
    for row, index in enumerate(places(schedule)):
        assert_same(pieces[row, index >= 0], whole[row, index[index >= 0]])
    assert np.abs(np.diff(whole, axis=1)).max(-1).min() > 1e-3


@functools.cache
def both_ways(apply, prompts):
    """The logits of the whole, those of the pieces, and the cache behind them."""

    def run(params, tokens):
        pieces, cache = read(apply, params, apply(params, 2, CAPACITY, method="start"), SCHEDULES[prompts])
        return apply(params, tokens), pieces, cache

    return jax.jit(run)


def check(params, apply, prompts):
    """The pieces are the whole; the cache after them."""
    whole, pieces, cache = jax.device_get(both_ways(apply, prompts)(params, TOKENS))
    assert_pieces_are_the_whole(pieces, whole, SCHEDULES[prompts])
    np.testing.assert_array_equal(cache.next_position_B, np.concatenate(SCHEDULES[prompts], 1).sum(1))
    return cache


POSITIONS = [p for p in or_none(Position) if p is None or p.acts.isdisjoint(("key_features", "score", "to_block"))]
SCHEMES = {i: position for i, position in enumerate(POSITIONS) if position is not None}


def chosen(which, answers):
    """Answer number `which`; None is nothing added."""
    arrays = [jnp.zeros((), jnp.float32) if answer is None else answer for answer in answers]
    return jnp.stack(jnp.broadcast_arrays(*arrays))[which]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneOfBiases:
    """The bias number `which`."""

    which: jax.Array
    biases: tuple[Any, ...]

    def __call__(self, queries, keys):
        return chosen(self.which, [bias and bias(queries, keys) for bias in self.biases])


@dataclass(frozen=True)
class OneOfAll(Position):
    """The shipped position whose number the parameter `which` is."""

    name = "one_of_all"

    def parameters(self, *sizes):
        own = {f"{i}_{name}": p for i, one in SCHEMES.items() for name, p in one.parameters(*sizes).items()}
        return {"which": Parameter((), ZEROS)} | own

    def layer_parameters(self, *sizes):
        return {f"{i}_{n}": p for i, one in SCHEMES.items() for n, p in one.layer_parameters(*sizes).items()}

    def answers(self, method, params, *arguments, otherwise=None):
        """What each position says, where it acts in this way."""
        own = [
            {k.partition("_")[2]: v for k, v in params.items() if k.startswith(f"{i}_")} for i in range(len(POSITIONS))
        ]
        return [
            otherwise if one is None or method not in one.acts else getattr(one, method)(*arguments, p)
            for one, p in zip(POSITIONS, own, strict=True)
        ]

    def to_embedding(self, positions_BL, d_model, params):
        return chosen(params["which"], self.answers("to_embedding", params, positions_BL, d_model))

    def to_query_key_input(self, positions_BL, d_model, params):
        return chosen(params["which"], self.answers("to_query_key_input", params, positions_BL, d_model))

    def to_query(self, q_BLHK, positions_BL, params):
        return chosen(params["which"], self.answers("to_query", params, q_BLHK, positions_BL, otherwise=q_BLHK))

    def to_key(self, k_BLHK, positions_BL, params):
        return chosen(params["which"], self.answers("to_key", params, k_BLHK, positions_BL, otherwise=k_BLHK))

    def bias(self, q_BLHK, causal, params):
        return OneOfBiases(params["which"], tuple(self.answers("bias", params, q_BLHK, causal)))


@functools.cache
def model_of_all_positions(**choices):
    return language_model(position=OneOfAll(), **choices)


OF_SOFTMAX = [backend for backend in or_none(Backend) if backend is None or backend.computes(None)]
COMBINATIONS = pairwise(OF_SOFTMAX, or_none(Sparsity), [1, 2, 4], [*SCHEDULES])


@pytest.mark.parametrize("position", range(len(POSITIONS)), ids=lambda i: str(POSITIONS[i]))
@pytest.mark.parametrize(("backend", "sparsity", "num_kv_heads", "prompts"), COMBINATIONS, ids=str)
def test_pieces_are_the_whole(backend, sparsity, num_kv_heads, prompts, position):
    """A prompt, more tokens at once and single tokens have the logits of one pass; padding is as if it were not there.

    A cache has one slot per token, or only as many as the model looks back, and the heads of keys and values.
    """
    choices = {"backend": backend, "sparsity": sparsity, "num_kv_heads": num_kv_heads}
    params, apply = model_of_all_positions(**{f"mixer.{name}": value for name, value in choices.items()})
    params = params | {"position": params["position"] | {"which": jnp.int32(position)}}
    cache = check(params, apply, prompts)
    assert cache.capacity == ((sparsity and sparsity.span) or CAPACITY)
    assert [array.size for array in jax.tree.leaves(cache.layers)] == [2 * cache.capacity * num_kv_heads * 4] * 4


TURNS = in_turn(
    **{
        "position": POSITIONS,
        "mixer.backend": OF_SOFTMAX,
        "mixer.sparsity": or_none(Sparsity),
        "residual": shipped(Residual),
        "mixer.projection": or_none(Projection),
        "mixer.merge": or_none(Merge)[::-1],
        "mixer.scale": or_none(Scale),
        "layers": shipped(Layers),
        "norm": or_none(Norm),
    }
)
# A sum of heads has wider values than keys: the kernel needs one size, and input that is not projected has one.
ONE_SIZE = {"mixer.backend": Fused(), "mixer.projection": NoProjections()}


def fitting(turn):
    refused = turn["mixer.merge"] == SumHeads() and any(turn[name] == value for name, value in ONE_SIZE.items())
    return turn | {"mixer.merge": None} if refused else turn


VARIANTS = [*map(fitting, TURNS)]


@pytest.mark.parametrize("choices", VARIANTS, ids=lambda choices: "-".join(map(str, choices.values())))
def test_every_choice_has_a_cache(choices):
    """Residuals, projections, merges, scales, layers and norms are the same in pieces, and each position by itself."""
    params, apply = language_model(**choices)
    check(shaken(params), apply, "padded")  # some residual connections begin by doing nothing


@pytest.mark.parametrize("prompts", SCHEDULES)
@pytest.mark.parametrize("sparsity", [None, SlidingWindow(SPAN)], ids=str)
@pytest.mark.parametrize(
    "position", [Contextual(limit=3), Forgetting(), RelativeKeys(limit=3, values=True), StepSinusoidal()], ids=str
)
def test_other_positions_have_a_cache(position, sparsity, prompts):
    """What is summed over keys is the same in slots of any order; what is added to a block is of the token alone."""
    check(*language_model(**{"position": position, "mixer.sparsity": sparsity}), prompts)


@pytest.mark.parametrize("prompts", SCHEDULES)
def test_a_convolution_wider_than_the_window_has_a_cache(prompts):
    """The ring keeps what the convolution spans, also where attention looks less far."""
    choices = {"mixer.sparsity": SlidingWindow(2), "mixer.parts": (ShortConvolution(4),)}
    params, apply = language_model(**choices)
    check(shaken(params), apply, prompts)  # the kernel begins by doing nothing


@pytest.mark.parametrize("prompts", SCHEDULES)
@pytest.mark.parametrize("sinks", [1, 3])
def test_sinks_have_slots_of_their_own(prompts, sinks):
    """The ring keeps the first tokens and the latest ones, and nothing else."""
    params, apply = language_model(**{"mixer.sparsity": SlidingWindow(2, sinks=sinks), "position": "rope"})
    assert check(params, apply, prompts).capacity == 2 + sinks


@pytest.mark.parametrize(
    "each",
    [
        Alternate("mixer.num_kv_heads", (4, 2)),
        Alternate("mixer.heads", (LatentHeads(rank=8, rotary=2), None)),
    ],
    ids=lambda each: each.path,
)
def test_layers_may_differ_in_the_shape_of_their_heads(each):
    """A layer sees of earlier ones what it shares with them, which is nothing here."""
    check(*language_model(pattern=(each,)), "padded")


def test_every_switch_has_a_cache():
    """Biases, a scaled positional bias, scaled and tied embeddings."""
    biases = {"mixer.bias": ("query", "key", "value", "out"), "feed_forward.bias": True}
    switches = {"mixer.scale_bias": True, "embedding.scaled": True, "head.tied": True}
    check(*language_model(position="alibi", **biases, **switches), "plain")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sparsity", or_none(Sparsity), ids=str)
def test_a_cache_can_be_carried_by_a_loop(sparsity, dtype):
    """Extending leaves every shape and dtype as it is; keys and values have the compute dtype, logits float32."""
    params, apply = language_model(**{"mixer.sparsity": sparsity, "dtype": dtype})
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
    backend=OF_SOFTMAX,
    sparsity=or_none(Sparsity)[::-1],
    num_kv_heads=[2, 4],
    schedule=[PLAIN, PADDED],
)


@pytest.mark.parametrize("choices", SELF_ATTENTION, ids=lambda choices: f"{choices['backend']}-{choices['sparsity']}")
def test_the_source_is_read_once(choices):
    """Target in pieces = target at once; what `start` remembers of a padded source is all that is needed of it.

    After it the encoder and the projections of the source may be anything.
    """
    schedule = choices["schedule"]
    params, apply = encoder_decoder(**{f"mixer.{name}": choices[name] for name in choices if name != "schedule"})
    cross = params["decoder"]["blocks"]["kinds"]["0"]["cross_attention"]
    unneeded = [params["encoder"], params["source_embedding"], cross["key"], cross["value"]]
    gone = {id(leaf) for leaf in jax.tree.leaves(unneeded)}
    rest = jax.tree.map(lambda leaf: leaf * jnp.nan if id(leaf) in gone else leaf, params)
    assert 0 < len(gone) < len(jax.tree.leaves(params))

    def run(params, rest, tokens, sources, valid):
        cache = apply(params, 2, CAPACITY, sources, valid, method="start")
        pieces, after = read(apply, rest, cache, schedule)
        return apply(params, sources, tokens, source_valid_BS=valid), pieces, (cache.source, after.source)

    whole, pieces, (before, after) = quickly(run, params, rest, TOKENS, SOURCES, SOURCE_VALID)
    assert_pieces_are_the_whole(pieces, whole, schedule)
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize("sparsity", [None, SlidingWindow(6)], ids=str)
def test_past_the_capacity(sparsity):
    """A token without a slot has no logits but NaN; a cache shorter than the window is no ring."""
    params, apply = language_model(**{"position": "rope", "mixer.sparsity": sparsity, "num_layers": 1})

    def run(params, tokens):
        def step(cache, token_B):
            return apply(params, token_B[:, None], cache, method="extend")[::-1]

        return jax.lax.scan(step, apply(params, len(tokens), 4, method="start"), tokens.T)[1]

    steps = quickly(run, params, TOKENS)
    assert np.isfinite(steps[:4]).all()
    assert np.isnan(steps[4:]).all()


def test_past_the_positions():
    """A cache longer than a table of positions is refused when it is made; other positions go on."""
    params, apply = language_model(position="learned")
    with pytest.raises(
        ConfigError, match=f"{CAPACITY + 1} tokens are more than max_length {CAPACITY}, and position learned"
    ):
        apply(params, 1, CAPACITY + 1, method="start")
    assert apply(params, 1, CAPACITY, method="start").capacity == CAPACITY
    params, apply = language_model(position="rope")
    assert apply(params, 1, CAPACITY + 1, method="start").capacity == CAPACITY + 1


def test_an_encoder_has_no_cache():
    """What sees later tokens cannot be read in pieces."""
    params, apply = language_model(causal=False)
    with pytest.raises(ConfigError, match="only a causal model has a cache"):
        apply(params, 1, LENGTH, method="start")


def test_a_slot_of_a_ring_is_of_one_token():
    assert slots_of(Tokens.at([0, 1, 2, 3], valid=np.ones(4, bool)), 3, None).tolist() == [[3, 1, 2, 0]]
