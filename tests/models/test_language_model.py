"""The language model: packing, padding, positions, dtypes, and implementations that agree."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import dropout
from transformer.core.errors import ConfigError
from transformer.core.modules import at, split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.experts import TopKExperts
from transformer.functional.masks import Arbitrary, Causal, Prefix, Tokens, Window
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.mixer import Context
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.objectives.objective import cross_entropy
from transformer.testing.subject import small, tokens_of

POSITIONS = ["none", "sinusoidal", "query_key_sinusoidal", "learned", "rope", "alibi"]
BACKENDS = ["none", "chunked(block=3)"]
TOKENS = np.array([[3, 1, 4, 1, 5, 2, 6, 0]])
INDEX = np.arange(8)
CAUSAL = INDEX[:, None] >= INDEX


def model(**choices):
    sizes = {"vocab_size": 8, "max_length": 16, "num_layers": 1, "d_model": 16, "mixer": Attention(num_heads=2)}
    laws = {"initializer": Normal(0.2), "embedding": Embedding(initializer=Normal(0.2))}
    return LanguageModel(ModelConfig(**sizes | laws).replace(choices), key=jax.random.key(0))


@functools.cache
def compiled(position, backend):
    """The logits as a function of everything that a caller may pass."""
    params, apply = split(model(**{"position": position, "mixer.backend": backend}))

    @jax.jit
    def run(tokens, positions, segments, valid, allowed):
        arguments = {"positions_BL": positions, "segments_BL": segments, "valid_BL": valid, "mask": Arbitrary(allowed)}
        return apply(params, tokens, **arguments)

    return run


def logits(position, backend="none", *, tokens=TOKENS, positions=INDEX, segments=0 * INDEX, valid=True, mask=CAUSAL):
    positions, segments, valid = (np.broadcast_to(x, (1, 8)) for x in (positions, segments, valid))
    run = compiled(position, backend)
    return np.asarray(run(*map(jnp.asarray, (tokens, positions, segments, valid, np.broadcast_to(mask, (8, 8))))))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_packing(position, backend):
    """Two documents in one sequence, with segments and reset positions, are each document alone."""
    segments, positions = (INDEX >= 5).astype(int), np.where(INDEX < 5, INDEX, INDEX - 5)
    packed = logits(position, backend, segments=segments, positions=positions)
    first = logits(position, backend, tokens=np.where(INDEX < 5, TOKENS, 7))
    second = logits(position, backend, tokens=np.roll(TOKENS, -5, 1))
    chex.assert_trees_all_close(packed[:, :5], first[:, :5], atol=1e-5)
    chex.assert_trees_all_close(packed[:, 5:], second[:, :3], atol=1e-5)
    assert np.abs(packed - logits(position, backend, positions=positions))[:, 5:].max() > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_padding_on_the_left(position, backend):
    """Padding before a sequence, with positions that ignore it, changes none of its logits."""
    padding = {"valid": INDEX >= 3, "positions": np.maximum(INDEX - 3, 0)}
    padded = logits(position, backend, **padding)
    alone = logits(position, backend, tokens=np.roll(TOKENS, -3, 1))
    chex.assert_trees_all_close(padded[:, 3:], alone[:, :5], atol=1e-5)
    other = logits(position, backend, tokens=np.where(INDEX >= 3, TOKENS, 7), **padding)
    np.testing.assert_array_equal(other[:, 3:], padded[:, 3:])
    assert np.isfinite(padded).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_and_segments_are_respected_by_any_mask(backend):
    """A mask of the caller is cut by padding and segments: nothing leaks through a full one."""
    run = functools.partial(logits, "rope", backend, valid=INDEX < 6, segments=INDEX // 3, mask=True)
    before = run()
    for changed, same in (([0, 1, 2], slice(3, 8)), ([3, 4, 5], slice(0, 3)), ([6, 7], slice(0, 6))):
        after = run(tokens=np.where(np.isin(INDEX, changed), 7 - TOKENS, TOKENS))
        np.testing.assert_array_equal(after[:, same], before[:, same])
        assert np.abs(after - before)[:, changed].max() > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_shifted_positions(position, backend):
    """A common shift of the positions is invisible to relative schemes, and only to them."""
    difference = np.abs(logits(position, backend) - logits(position, backend, positions=INDEX + 8)).max()
    if position in ("none", "rope", "alibi"):
        assert difference < 1e-4
    else:
        assert difference > 1e-2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position", POSITIONS)
def test_permuted_tokens(position, backend):
    """Without positions and mask, permuted tokens have permuted logits; with positions they have not."""
    order = np.array([4, 2, 7, 0, 6, 1, 3, 5])
    permuted = logits(position, backend, tokens=TOKENS[:, order], mask=True)
    difference = np.abs(logits(position, backend, mask=True)[:, order] - permuted).max()
    if position == "none":
        assert difference < 1e-5
    else:
        assert difference > 1e-3


def test_defaults():
    """Without arguments: causal, positions from zero, one document, nothing padded; eager or compiled."""
    lm = model(position="rope")
    chex.assert_trees_all_close(lm(jnp.asarray(TOKENS)), logits("rope"), atol=1e-5)
    params, apply = split(lm)
    both = jnp.asarray(np.concatenate([7 - TOKENS, TOKENS]))
    chex.assert_trees_all_close(jax.jit(apply)(params, both)[1:], logits("rope"), atol=1e-5)
    assert "table" in repr(lm)


def test_positions_are_of_all_tokens():
    lm = model(position="rope")
    with pytest.raises(ConfigError, match=r"^positions: \(1, 5\) is not of 8 tokens"):
        lm(jnp.asarray(TOKENS), positions_BL=jnp.arange(5)[None])


def test_layers_widen_the_view():
    """Two layers of a window of 2 reach two tokens back, and a layer is taken out by its number."""
    lm = model(position="alibi", num_layers=2)
    run = jax.jit(lambda t: lm(t, mask=Causal() & Window(2)))
    difference = run(jnp.asarray(TOKENS)) - run(jnp.asarray(np.where(INDEX == 2, 7, TOKENS)))
    changed = np.abs(np.asarray(difference)).max((0, 2)) > 0
    assert changed.tolist() == [False, False, True, True, True, False, False, False]
    kernel = split(lm)[0]["blocks"]["kinds"]["0"]["attention"]["query"]["kernel"]
    chex.assert_trees_all_equal(lm.blocks[1].attention.query.kernel[...], kernel[1])


@functools.cache
def gradients(seed=None, **choices):
    """Loss, logits and the gradient of every parameter; a seed trains."""
    params, apply = split(model(**choices))
    key = None if seed is None else jax.random.key(seed)

    def loss(params):
        logits = apply(params, jnp.asarray(TOKENS), key=key)
        return cross_entropy(logits[:, :-1], jnp.asarray(TOKENS[:, 1:])).mean(), logits

    return jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(params))


CHOICES = {"position": "rope", "mixer.num_kv_heads": 1, "mixer.scale": ConstantScale(0.2)}


def test_chunked_equals_exact():
    """Loss, logits and the gradient of every parameter do not depend on the implementation."""
    exact, chunked = (gradients(**CHOICES, **{"mixer.backend": backend}) for backend in BACKENDS)
    chex.assert_trees_all_close(chunked, exact, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scheme", ["alibi", "t5_bias", "relative_keys(limit=3)", "rope", "sinusoidal"])
def test_randomized_positions_in_training(scheme):
    """A key draws positions, the same for every implementation; without one they are as far apart as the mean draw."""
    position = f"randomized(scheme={scheme}, longest=64)"
    exact, chunked = (gradients(1, **{"position": position, "mixer.backend": backend}) for backend in BACKENDS)
    chex.assert_trees_all_close(chunked, exact, atol=1e-5, rtol=1e-4)
    (_, logits), (_, other), (_, still), (_, plain) = (
        gradients(*seed, position=choice)[0]
        for seed, choice in (((1,), position), ((2,), position), ((), position), ((), scheme))
    )
    assert min(np.abs(one - two).max() for one, two in itertools.combinations((logits, other, still, plain), 2)) > 1e-3


def test_more_tokens_than_randomized_positions():
    """As many as are drawn from are trained on, also more than `max_length`; one more is an error."""
    lm, key = model(position="randomized(scheme=alibi, longest=12)", max_length=8), jax.random.key(1)
    ends = [jax.jit(lm)(jnp.zeros((1, 12), jnp.int32).at[0, place].set(1), key=key)[0, -1] for place in (0, 9)]
    assert np.abs(ends[0] - ends[1]).max() > 0
    with pytest.raises(ConfigError, match=r"^randomized.longest: 12 positions are fewer than 13 tokens$"):
        lm(jnp.zeros((1, 13), jnp.int32), key=key)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16(backend):
    """Computing in bfloat16 keeps float32 logits and gradients, near those of float32."""
    choices = CHOICES | {"mixer.backend": backend}
    (precise, logits), exact = gradients(**choices)
    (rough, rough_logits), rounded = gradients(**choices, dtype="bfloat16")
    assert rough_logits.dtype == np.float32
    np.testing.assert_allclose(rough, precise, rtol=2e-2)
    np.testing.assert_allclose(rough_logits, logits, atol=3e-2 * np.abs(logits).max())
    for got, expected in zip(jax.tree.leaves(rounded), jax.tree.leaves(exact), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=6e-2 * np.abs(expected).max() + 1e-6)
    assert np.abs(rough_logits - logits).max() > 0


def test_every_parameter_gets_a_gradient():
    """No parameter is left out of the computation; key biases are, by the symmetry of softmax."""
    biases = {"mixer.bias": ("query", "key", "value", "out"), "feed_forward.bias": True}
    choices = {"feed_forward.activation": "glu", "head.tied": False}
    _, leaves = gradients(residual="sandwich", **choices, **biases)
    for path, gradient in jax.tree.leaves_with_path(leaves):
        name = jax.tree_util.keystr(path)
        assert (np.abs(gradient).max() < 1e-6) == ("['key']['bias']" in name), name


def test_dropout_needs_a_key():
    """Without a key the rate is irrelevant; with one, embedding and blocks drop under keys of their own."""
    lm, key = model(position="rope", dropout=0.2), jax.random.key(1)
    np.testing.assert_allclose(lm(jnp.asarray(TOKENS)), logits("rope"), atol=1e-5)
    x = dropout(lm.embedding(jnp.asarray(TOKENS)), 0.2, at(key, "embedding"))
    x, *_ = lm.blocks(x, context=Context(Tokens.at(INDEX), Causal()), key=at(key, "blocks"))
    chex.assert_trees_all_close(lm(jnp.asarray(TOKENS), key=key), lm.embedding.logits(lm.final_norm(x)), atol=1e-5)


def test_longer_than_max_length():
    """Learned positions end at max_length with an error; the others go on."""
    tokens = jnp.zeros((1, 9), jnp.int32)
    with pytest.raises(ConfigError, match=r"9 tokens are more than max_length 8, and position learned"):
        model(position="learned", max_length=8)(tokens)
    assert np.isfinite(jax.jit(model(position="rope", max_length=8))(tokens)).all()


@pytest.mark.parametrize("backend", [None, Chunked(block=2)], ids=str)
@pytest.mark.parametrize("now", range(6))
def test_a_prefix_is_read_in_both_directions(backend, now):
    """By the gradient: a token of the prefix sees all of it, one behind sees what came before, and nobody more."""
    length, prefix = 6, 3
    seen = prefix_gradients(backend, length, prefix)[now]
    assert np.flatnonzero(seen > 1e-7).tolist() == list(range(max(prefix, now + 1)))
    assert not seen[max(prefix, now + 1) :].any()


@functools.cache
def prefix_gradients(backend, length, prefix):
    """(L, L): how much the logits of each position depend on each token."""
    params, apply = split(model(**{"head.tied": False, "mixer.backend": backend}))
    tokens, mask = jnp.arange(length)[None], Causal() | Prefix(jnp.array([prefix]))

    def totals(table):
        logits = apply(params | {"embedding": {"table": table}}, tokens, mask=mask)
        return (logits[0] ** 2).sum(-1)

    jacobian = jax.jit(jax.jacrev(totals))(params["embedding"]["table"])
    return np.abs(np.asarray(jacobian)).max(-1)[:, :length]


def test_the_config_of_a_translator_is_none_of_a_language_model():
    """Its blocks attend to a source."""
    with pytest.raises(ConfigError, match=r"^LanguageModel: ModelConfig is needed, and EncoderDecoderConfig is given"):
        LanguageModel(small(EncoderDecoderConfig), key=jax.random.key(0))


def test_each_block_that_predicts_ahead_drops_features_of_its_own():
    key = jax.random.key(0)
    params, apply = split(LanguageModel(small(predict_ahead=2, dropout=0.5), key=key))
    alike = params | {"future": dict.fromkeys(params["future"], params["future"]["0"])}
    _, second, third = apply(alike, tokens_of(2), method="predict_ahead", key=key)
    assert np.abs(second - third).max() > 1e-3


@pytest.mark.parametrize("name", ["valid", "segments", "positions"])
def test_arrays_of_another_batch_are_refused(name):
    params, apply = split(LanguageModel(small(), key=jax.random.key(0)))
    other = np.ones((3, 4), bool if name == "valid" else np.int32)
    with pytest.raises(ConfigError, match=rf"^{name}: \(3, 4\) is not of 2 rows$"):
        apply(params, jnp.ones((2, 4), jnp.int32), **{f"{name}_BL": other})


def test_blocks_that_predict_ahead_add_to_the_loss():
    """Experts that all take all tokens say 1 in every layer, of the stack and behind it."""
    experts = TopKExperts(2, top=2, d_ff=8, balance=1.0, router_z=0.0)
    params, apply = split(
        LanguageModel(small(predict_ahead=2, num_layers=1, feed_forward=experts), key=jax.random.key(0))
    )
    run = jax.jit(functools.partial(apply, method="predict_ahead", with_penalty=True))
    _, penalty = run(params, tokens_of(2))
    np.testing.assert_allclose(penalty, 3.0, rtol=1e-5)
