"""Models beside the language model: padding, directions, tables, pooling, patches, and layers that are skipped."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.analysis.counts import parameter_count
from transformer.core.arrays import drop_sequences
from transformer.core.modules import at, split
from transformer.core.parameters import Normal
from transformer.core.values import ConfigError
from transformer.embeddings.embedding import Embedding
from transformer.embeddings.patches import cut, join, resize_positions
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Causal, Prefix, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.mixer import Context
from transformer.models.build import build
from transformer.models.classifier import Classifier, ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.images import (
    AutoencoderConfig,
    ImageToImage,
    MaskedAutoencoder,
    PatchConfig,
    VisionConfig,
    VisionTransformer,
)
from transformer.models.language_model import LanguageModel
from transformer.models.pooling import AttentionPooling, ClassToken, MeanPooling, MultiheadPooling, PerToken, Pooling
from transformer.models.stack import Layers, Scanned, Unrolled
from transformer.models.transformer import Block
from transformer.norms.norm import RMSNorm
from transformer.objectives.objective import cross_entropy
from transformer.positions.absolute import Learned, QueryKeySinusoidal, Sinusoidal2D
from transformer.positions.position import Position
from transformer.positions.randomized import Randomized
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import DeepNorm, Depth, NoNormResidual, SubNorm
from transformer.residuals.scaled_branches import ReZero, TFixup

KEY = jax.random.key(0)
SUBLAYERS = {"mixer": Attention(num_heads=2), "feed_forward": FeedForward(d_ff=8)}
SIZES = {"vocab_size": 11, "max_length": 6, "num_layers": 1, "d_model": 8} | SUBLAYERS
LAWS = {"initializer": Normal(0.4), "embedding": Embedding(initializer=Normal(0.4)), "scale_residual_init": False}
SIMPLE = {"norm": RMSNorm(), "feed_forward": FeedForward(d_ff=8, activation=ReLU())}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SOURCE, TARGET = np.array([[7, 3, 9, 5]]), np.array([[1, 6, 2, 8, 4]])


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def texts(**choices):
    return ModelConfig(**SIZES | LAWS | SIMPLE).replace(choices)


def pairs(**choices):
    sizes = SIZES | {"source_vocab_size": 11, "max_source_length": 6}
    return EncoderDecoderConfig(**sizes | LAWS | SIMPLE, position=RoPE()).replace(choices)


def classes(**choices):
    return ClassifierConfig(**SIZES | LAWS | SIMPLE, num_classes=3).replace(choices)


def patches(kind=PatchConfig, **choices):
    return kind(**SIZES | LAWS | SIMPLE, image_size=(4, 6, 2), patch_size=2).replace(choices)


def pure(config):
    """The model's parameters and its compiled call."""
    params, apply = split(build(config, key=KEY))
    return params, jax.jit(apply, static_argnames="method")


def gradient_of_tables(config, loss, *names):
    """Of `loss(apply, params)`: the size of the gradient of each row of the tables with these names."""
    params, apply = split(build(config, key=KEY))

    def total(tables):
        return loss(apply, params | {name: {"table": table} for name, table in tables.items()})

    tables = {name: params[name]["table"] for name in names}
    gradients = jax.jit(jax.grad(total))(tables)
    return [np.abs(np.asarray(gradients[name])).max(-1) for name in names]


def images(count=2, size=(4, 6, 2), seed=0):
    return np.random.default_rng(seed).normal(size=(count, *size)).astype(np.float32)


# From a config to its model.


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ModelConfig(**SIZES), LanguageModel),
        (ModelConfig(**SIZES, causal=False), LanguageModel),
        (pairs(), EncoderDecoder),
        (classes(), Classifier),
        (patches(), ImageToImage),
        (patches(AutoencoderConfig), MaskedAutoencoder),
        (patches(VisionConfig, num_classes=3), VisionTransformer),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ModelConfig) else "",
)
def test_the_type_of_a_config_says_which_model(config, kind):
    """`build` picks the class, and the example inputs are what it can be called with."""
    model = build(config, key=KEY)
    assert type(model) is kind
    assert jax.eval_shape(model, *model.config.example_inputs()).dtype == jnp.float32
    assert parameter_count(config) == sum(leaf.size for leaf in jax.tree.leaves(split(model)[0]))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (dataclasses.replace(pairs(), vocab_size=None), "vocab_size"),
        (dataclasses.replace(pairs(), source_vocab_size=None), "vocab_size"),
        (classes(num_classes=None), "num_classes"),
        (patches(image_size=None), "image_size"),
        (patches(VisionConfig, num_classes=None), "num_classes"),
    ],
)
def test_what_no_data_has_filled_in_is_an_error(config, field):
    """Sizes that are still open are named when the model is built."""
    with pytest.raises(ConfigError, match=rf"model\.{field} is not set"):
        build(config, key=KEY)


# Encoder-decoder.


@pytest.mark.parametrize("position", [Learned(), QueryKeySinusoidal(), RoPE(), ALiBi()], ids=str)
def test_source_padding_has_no_influence(position):
    """Neither on encoder nor on decoder: any tokens in the padding give the logits of the source alone."""
    params, run = pure(pairs(position=position))
    alone = run(params, jnp.asarray(SOURCE), jnp.asarray(TARGET))
    valid = jnp.array([[True] * 4 + [False] * 2])
    padded = [np.append(SOURCE, [rest], 1) for rest in ([0, 0], [2, 10])]
    outs = [run(params, jnp.asarray(p), jnp.asarray(TARGET), source_valid_BS=valid) for p in padded]
    chex.assert_trees_all_close(outs[0], alone, **CLOSE)
    np.testing.assert_array_equal(*outs)
    unmasked = run(params, jnp.asarray(padded[0]), jnp.asarray(TARGET), source_valid_BS=jnp.ones((1, 6), bool))
    assert np.abs(unmasked - alone).max() > 1e-3


@pytest.mark.parametrize("backend", [None, Chunked(block=3)], ids=str)
def test_the_target_is_causal_and_sees_the_whole_source(backend):
    """By the gradient of one position's logits with respect to both tables."""
    now = 2

    def loss(apply, params):
        return (apply(params, jnp.asarray(SOURCE), jnp.asarray(TARGET))[0, now] ** 2).sum()

    config = pairs(**{"head.tied": False, "mixer.backend": backend})
    source, target = gradient_of_tables(config, loss, "source_embedding", "embedding")
    assert set(np.flatnonzero(source > 1e-7)) == set(SOURCE[0])
    assert set(np.flatnonzero(target > 1e-7)) == set(TARGET[0, : now + 1])
    assert not target[TARGET[0, now + 1 :]].any()


def test_the_source_is_read_in_both_directions():
    """The first state of the encoder depends on the last token of the source."""
    model = build(pairs(), key=KEY)
    states = [model.encode(jnp.asarray(s))[0].states_BSD for s in (SOURCE, np.where(SOURCE == 5, 6, SOURCE))]
    assert np.abs(states[0] - states[1])[0, 0].max() > 1e-3


def test_positions_of_source_and_target_are_not_compared():
    """Cross-attention has no relative positions: a longer padded source moves nothing under RoPE."""
    params, run = pure(pairs(num_encoder_layers=1))
    shifted = np.append([[10]], SOURCE, 1)
    valid = jnp.array([[False] + [True] * 4])
    logits = run(params, jnp.asarray(shifted), jnp.asarray(TARGET), source_valid_BS=valid)
    chex.assert_trees_all_close(logits, run(params, jnp.asarray(SOURCE), jnp.asarray(TARGET)), **CLOSE)


@pytest.mark.parametrize(
    ("share", "tie", "tables"), [(False, False, 3), (False, True, 2), (True, False, 2), (True, True, 1)]
)
def test_embedding_tables(share, tie, tables):
    """One table for each use, or for all three; each less is one vocabulary times the width less."""
    config = pairs(**{"share_embeddings": share, "head.tied": tie})
    params, _ = split(build(config, key=KEY))
    names = [name for name in ("embedding", "source_embedding", "output") if name in params]
    assert len(names) == tables
    every = pairs(**{"share_embeddings": False, "head.tied": False})
    assert parameter_count(every) - parameter_count(config) == (3 - tables) * 11 * 8


def test_a_shared_table_is_read_by_source_and_target():
    """The same tokens have the same vectors on both sides; vocabularies of two sizes cannot be shared."""
    shared, own = (build(pairs(share_embeddings=share), key=KEY) for share in (True, False))
    assert shared.source_embedding is None
    assert np.abs(own.embedding.table[...] - own.source_embedding.table[...]).max() > 0.1
    before = shared.encode(jnp.asarray(SOURCE))[0].states_BSD
    shared.embedding.table[...] = 2 * shared.embedding.table[...] + 1
    assert np.abs(shared.encode(jnp.asarray(SOURCE))[0].states_BSD - before).max() > 1e-3
    with pytest.raises(ConfigError, match=r"model\.share_embeddings: 7 source types and 11 target types"):
        pairs(share_embeddings=True, source_vocab_size=7)


def test_factorized_and_unit_embeddings():
    """A narrow table and a matrix are the wide table that is their product; unit rows have one length."""
    factors, wide = (texts(**{"embedding.dim": dim}) for dim in (3, None))
    (params, apply), (other, plain) = (split(build(config, key=KEY)) for config in (factors, wide))
    narrow = params["embedding"]
    assert narrow["table"].shape[1] == 3
    other = params | {"embedding": {"table": narrow["table"] @ narrow["projection"]}}
    chex.assert_trees_all_close(apply(params, TARGET), plain(other, TARGET), rtol=1e-4, atol=1e-5)
    model = build(texts(**{"embedding.unit_length": True}), key=KEY)
    model.embedding.gain[...] = jnp.float32(3.0)
    np.testing.assert_allclose(np.linalg.norm(model.embedding(TARGET), axis=-1), 3.0, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(model.embedding.logits(jnp.eye(8)[None])[0], axis=0), 3.0, rtol=1e-4)


def test_scaled_embeddings():
    """√D times the rows on both sides; the logits by the tied table are not scaled."""
    scaled, plain = (build(pairs(**{"embedding.scaled": scaled}), key=KEY) for scaled in (True, False))
    for name, tokens in (("embedding", TARGET), ("source_embedding", SOURCE)):
        expected = 8**0.5 * getattr(plain, name)(jnp.asarray(tokens))
        chex.assert_trees_all_close(getattr(scaled, name)(jnp.asarray(tokens)), expected, rtol=1e-6)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 8)), jnp.float32)
    chex.assert_trees_all_equal(scaled.embedding.logits(x), plain.embedding.logits(x))


IMAGE = np.random.default_rng(0).normal(size=(1, 4, 6, 2)).astype(np.float32)
LOGITS = {
    "tied": (texts, (TARGET,)),
    "untied": (lambda **more: texts(**{"head.tied": False} | more), (TARGET,)),
    "pairs": (pairs, (SOURCE, TARGET)),
    "classes": (classes, (TARGET,)),
    "patches": (patches, (IMAGE,)),
}


@pytest.mark.parametrize("kind", LOGITS)
def test_the_scale_of_logits(kind):
    """A factor on what every model has in its output; biases are zero as yet."""
    make, inputs = LOGITS[kind]
    scaled, plain = (build(make(**more), key=KEY)(*map(jnp.asarray, inputs)) for more in ({"head.scale": 0.25}, {}))
    chex.assert_trees_all_close(4 * scaled, plain, rtol=1e-6)
    assert np.abs(plain).max() > 1e-2


def test_encoder_and_decoder_have_their_own_sizes():
    """Layers and lengths of either side; what else there is they share."""
    config = pairs(num_encoder_layers=3, num_layers=2, max_source_length=5, source_vocab_size=7)
    encoder = config.encoder
    assert (encoder.num_layers, encoder.max_length, encoder.vocab_size, encoder.causal) == (3, 5, 7, False)
    assert encoder == dataclasses.replace(encoder, norm=config.norm, residual=config.residual)
    assert pairs(num_layers=2).encoder.num_layers == 2
    with pytest.raises(ConfigError, match="the decoder of an encoder-decoder is causal"):
        pairs(causal=False)


def test_an_encoder_may_share_layers_that_the_decoder_does_not():
    """One side, the other, or both (Lan et al. 2020; Narang et al. 2021)."""
    both = pairs(num_layers=4, distinct_layers=2)
    sides = [both, pairs(num_layers=4, distinct_encoder_layers=1), pairs(**DECODER_SHARES)]
    shared = [(one.encoder.num_distinct_layers, one.num_distinct_layers) for one in sides]
    assert shared == [(2, 2), (1, 4), (4, 2)]
    rows = [leaf.shape[0] for leaf in jax.tree.leaves(pure(sides[1])[0]["encoder"]["blocks"])]
    assert set(rows) == {1}


DECODER_SHARES = {"num_layers": 4, "distinct_layers": 2, "distinct_encoder_layers": 4}


def test_deepnorm_of_an_encoder_beside_a_decoder():
    """Wang H. et al. 2022, figure 2, also inside of others; numbers that are given stay."""
    N, M = 6, 3
    residuals = {"residual": DeepNorm(), "feed_forward.residual": ReZero(placement=DeepNorm())}
    config = pairs(num_encoder_layers=N, num_layers=M, **residuals)
    numbers = {"alpha": 0.81 * (N**4 * M) ** (1 / 16), "beta": 0.87 * (N**4 * M) ** (-1 / 16)}
    own, inner = config.encoder.residual, config.encoder.feed_forward.residual.placement
    for residual in (own, inner):
        assert {name: getattr(residual, name) for name in numbers} == pytest.approx(numbers)
    assert config.residual == DeepNorm()
    assert config.residual.a(Depth(0, M, 0, 3)) == pytest.approx((3 * M) ** 0.25)
    assert config.residual.inner_gain(config.branches) == pytest.approx((12 * M) ** -0.25)
    assert pairs(residual=DeepNorm(2.0, 0.5)).encoder.residual == DeepNorm(2.0, 0.5)


def gains_of(config):
    """Of attention and of the feed-forward sublayer, for what reads the input and for the output."""
    own = config.inner_gain(config.residual), config.output_gain(config.residual)
    return *own, *config.feed_forward.gains(config)


def test_initial_values_of_an_encoder_beside_a_decoder():
    """Factors of T-Fixup (Huang X. et al. 2020, section 3) and of Magneto (Wang H. et al. 2022b, figure 2)."""
    N, M = 6, 3
    sizes = {"num_encoder_layers": N, "num_layers": M}
    fixed, sub = (pairs(**sizes, residual=residual) for residual in (TFixup(), SubNorm()))
    gains = {
        (9 * M) ** -0.25: (*gains_of(fixed), fixed.embedding_gain),
        0.67 * N**-0.25: gains_of(fixed.encoder),
        np.sqrt(np.log(3 * M)): gains_of(sub),
        np.sqrt(np.log(3 * M) * np.log(2 * N) / 3): gains_of(sub.encoder),
    }
    for gain, found in gains.items():
        assert found == pytest.approx((gain,) * len(found))
    assert fixed.encoder.embedding_gain == fixed.embedding_gain
    inner = [config.inner_norm(config.mixer.inner_norm, config.residual) for config in (sub, fixed)]
    assert inner == [sub.norm, None]
    tables = [pure(config)[0]["embedding"]["table"] for config in (fixed, pairs(**sizes))]
    assert tables[0].std() / tables[1].std() == pytest.approx(fixed.embedding_gain, rel=1e-5)


@functools.cache
def translation_gradient(layers: Layers):
    params, apply = split(build(pairs(num_layers=2, layers=layers, position=None), key=KEY))

    def loss(params):
        logits = apply(params, jnp.asarray(SOURCE), jnp.asarray(TARGET))
        return cross_entropy(logits[:, :-1], jnp.asarray(TARGET[:, 1:])).mean()

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.parametrize("layers", [Scanned(), Scanned(remat="full"), Unrolled(remat="dots")], ids=str)
def test_how_layers_are_run_changes_nothing(layers):
    """Scanned or unrolled, with or without rematerialization: one loss and one gradient."""
    chex.assert_trees_all_close(translation_gradient(layers), translation_gradient(Unrolled()), rtol=1e-5, atol=1e-6)


# Classes of texts, and of tokens.

POOLED = [pooling for pooling in shipped(Pooling) if not pooling.per_token]


@pytest.mark.parametrize("registers", [0, 2])
@pytest.mark.parametrize("pooling", POOLED, ids=str)
def test_padding_has_no_influence_on_a_class(pooling, registers):
    """The logits of a padded text are those of the text alone, whatever stands in the padding."""
    params, run = pure(classes(pooling=pooling, registers=registers))
    alone = run(params, jnp.asarray(SOURCE))
    assert alone.shape == (1, 3)
    valid = jnp.array([[True] * 4 + [False] * 2])
    padded = [np.append(SOURCE, [rest], 1) for rest in ([0, 0], [2, 10])]
    outs = [run(params, jnp.asarray(p), valid_BL=valid) for p in padded]
    chex.assert_trees_all_close(outs[0], alone, **CLOSE)
    np.testing.assert_array_equal(*outs)
    assert np.abs(run(params, jnp.asarray(padded[0])) - alone).max() > 1e-4


@pytest.mark.parametrize("pooling", POOLED, ids=str)
def test_every_real_token_has_a_say(pooling):
    """By the gradient of the logits with respect to the table."""
    valid = jnp.array([[True, True, True, False]])

    def loss(apply, params):
        return (apply(params, jnp.asarray(SOURCE), valid_BL=valid) ** 2).sum()

    (seen,) = gradient_of_tables(classes(pooling=pooling), loss, "embedding")
    assert set(np.flatnonzero(seen)) == set(SOURCE[0, :3])


@pytest.mark.parametrize("registers", [0, 2])
def test_classes_of_tokens(registers):
    """One for each token of the text, none for registers; padding has no influence, and every token sees all."""
    params, run = pure(classes(pooling=PerToken(), registers=registers))
    alone = run(params, jnp.asarray(SOURCE))
    assert alone.shape == (1, SOURCE.shape[1], 3)
    valid = jnp.array([[True] * 4 + [False] * 2])
    padded = [np.append(SOURCE, [rest], 1) for rest in ([0, 0], [2, 10])]
    outs = [run(params, jnp.asarray(p), valid_BL=valid)[:, :4] for p in padded]
    chex.assert_trees_all_close(outs[0], alone, **CLOSE)
    np.testing.assert_array_equal(*outs)
    changed = run(params, jnp.asarray(np.append(SOURCE[:, :3], [[9]], 1)))
    assert (np.abs(changed - alone).max(-1) > 1e-5).all()


def test_registers_are_seen_and_not_read():
    """Attention alone reads them: without any they change nothing, with it they do; none in a causal model."""
    for mixer, seen in ((Attention(num_heads=2), True), (None, False)):
        params, run = pure(classes(registers=2, mixer=mixer))
        other = params | {"extra": {"registers": params["extra"]["registers"] + 1.0}}
        outs = [run(p, jnp.asarray(SOURCE)) for p in (params, other)]
        assert (np.abs(outs[0] - outs[1]).max() > 1e-5) == seen
    with pytest.raises(ConfigError, match=r"model\.registers"):
        classes(registers=1, causal=True)


@pytest.mark.parametrize("pooling", shipped(Pooling), ids=str)
def test_a_causal_classifier_reads_its_text(pooling):
    """Where tokens see only those before them, a pooling sees the text or is refused."""
    try:
        params, run = pure(classes(pooling=pooling, causal=True))
    except ConfigError:
        return
    outs = [run(params, jnp.asarray(tokens)) for tokens in (SOURCE, 10 - SOURCE)]
    assert np.abs(outs[0] - outs[1]).max() > 1e-4


@pytest.mark.parametrize("pooling", shipped(Pooling), ids=str)
def test_texts_of_full_length(pooling):
    """A token of the pooling's own has a position of its own, and takes none from the text."""
    params, run = pure(classes(pooling=pooling))
    assert params["position"]["table"].shape == (6 + pooling.extra_token, 8)
    assert np.isfinite(run(params, jnp.arange(6, dtype=jnp.int32)[None])).all()
    with pytest.raises(ConfigError, match="more than max_length"):
        run(params, jnp.zeros((1, 7), jnp.int32))


def test_poolings_by_hand():
    """Mean and attention over the real tokens, and the first of all."""
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    valid, query = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool), x[0, 0]
    pooled = {
        p: p(jnp.asarray(x), jnp.asarray(valid), {"query": jnp.asarray(query)})
        for p in (MeanPooling(), AttentionPooling(), ClassToken())
    }
    for i, (row, real) in enumerate(zip(x, valid, strict=True)):
        weights = np.exp(row[real] @ query) / np.exp(row[real] @ query).sum()
        chex.assert_trees_all_close(pooled[MeanPooling()][i], row[real].mean(0), **CLOSE)
        chex.assert_trees_all_close(pooled[AttentionPooling()][i], weights @ row[real], **CLOSE)
        chex.assert_trees_all_equal(pooled[ClassToken()][i], jnp.asarray(row[0]))


def test_pooling_by_several_heads_by_hand():
    """Zhai et al. 2022: attention of one query to the real tokens, and an MLP around which the result is added."""
    rng, pooling = np.random.default_rng(0), MultiheadPooling(num_heads=2, expansion=2)
    x, real = rng.normal(size=(1, 5, 8)), slice(0, 3)
    params = {name: rng.normal(size=spec.shape) for name, spec in pooling.parameters(8).items()}
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        keys, values = ((x[0, real] @ params[name])[:, part] for name in ("key", "value"))
        weights = np.exp(keys @ params["query"][part] / 2)
        heads.append(weights / weights.sum() @ values)
    y = np.concatenate(heads) @ params["out"]
    normed = (y - y.mean()) / np.sqrt(y.var() + 1e-5) * params["scale"]
    expected = y + np.asarray(jax.nn.gelu(jnp.float32(normed @ params["up"]))) @ params["down"]
    arrays = {name: jnp.float32(value) for name, value in params.items()}
    found = pooling(jnp.float32(x), jnp.arange(5)[None] < 3, arrays)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match=r"map.num_heads: 3 heads do not divide d_model 8; the nearest that do are"):
        MultiheadPooling(num_heads=3).parameters(8)


@pytest.mark.parametrize("pooling", [MeanPooling(), AttentionPooling()], ids=str)
def test_pooling_of_nothing_is_zero(pooling):
    """A text without a real token gives zeros, not NaN."""
    out = pooling(jnp.ones((1, 3, 8)), jnp.zeros((1, 3), bool), {"query": jnp.ones(8)})
    assert not np.asarray(out).any()


def test_the_class_token_is_a_parameter_before_the_text():
    """It is what the logits are read from: with another value of it they are others, at the first position."""
    model = build(classes(pooling=ClassToken(), residual=NoNormResidual()), key=KEY)
    x = jnp.concatenate([model.pooling_params.token[...][None, None], model.embedding(jnp.asarray(SOURCE))], 1)
    states, _ = model.transform(x, Tokens.at(np.arange(5)))
    chex.assert_trees_all_close(model(jnp.asarray(SOURCE)), model.head(states[:, 0]), **CLOSE)


# Images.


def test_patches_are_cut_row_by_row():
    """The second patch is to the right of the first; joined again they are the images, bit for bit."""
    x = images()
    cut_up = cut(jnp.asarray(x), 2)
    assert cut_up.shape == (2, 6, 8)
    np.testing.assert_array_equal(cut_up[:, 1], x[:, 0:2, 2:4].reshape(2, -1))
    np.testing.assert_array_equal(cut_up[:, 3], x[:, 2:4, 0:2].reshape(2, -1))
    np.testing.assert_array_equal(join(cut_up, 2, 3), x)


def test_a_patch_is_embedded_by_a_linear_map():
    """Pixels times a kernel plus a bias (Dosovitskiy et al. 2020, equation 1)."""
    layer = build(patches(VisionConfig, num_classes=3), key=KEY).embedding
    layer.projection.bias[...] = layer.projection.bias[...] + 0.5
    pixels = images()[:, 2:4, 4:6].reshape(2, -1)
    expected = pixels @ np.asarray(layer.projection.kernel[...]) + 0.5
    chex.assert_trees_all_close(np.asarray(layer(jnp.asarray(images()))[:, 5]), expected, **CLOSE)


@pytest.mark.parametrize("kind", [PatchConfig, VisionConfig])
def test_patches_that_do_not_fill_an_image(kind):
    """The error names the nearest size that does; height and width need not be equal."""
    with pytest.raises(ConfigError, match=r"model.patch_size: patches of 4 do not fill images of 4 × 6; .* have 2"):
        build(patches(kind, patch_size=4), key=KEY)
    assert patches(kind, patch_size=2).grid == (2, 3)
    assert patches(kind, patch_size=1).patch_dim == 2


POSITIONS = [None, *(p for p in shipped(Position) if not isinstance(p, Randomized) and "score" not in p.acts)]
EYES = [(MeanPooling(), p) for p in POSITIONS] + [(p, Sinusoidal2D()) for p in POOLED[1:]]


@pytest.mark.parametrize(("pooling", "position"), EYES, ids=str)
def test_vision_transformer(pooling, position):
    """Finite logits of classes from every pooling and position; whole patches may change places only without one."""
    params, run = pure(patches(VisionConfig, num_classes=3, pooling=pooling, position=position))
    x = images()
    swapped = np.concatenate([x[:, :, 4:], x[:, :, 2:4], x[:, :, :2]], 2)
    out, other = (run(params, jnp.asarray(i)) for i in (x, swapped))
    assert out.shape == (2, 3)
    assert np.isfinite(out).all()
    difference = np.abs(out - other).max()
    assert difference < 1e-5 if position is None else difference > 1e-5


@pytest.mark.parametrize("first", [0, 1])
def test_rows_and_columns_are_told_apart(first):
    """Half of the features are the row's, half the column's; what stands before the patches is nowhere in the grid."""
    grid = Sinusoidal2D().on_grid(columns=3, first=first)
    x = np.asarray(grid.to_embedding(jnp.arange(first + 6)[None], 8, {})[0])
    before, patch = x[:first], x[first:].reshape(2, 3, 8)
    assert (patch[..., :4] == patch[:, :1, :4]).all()
    assert (patch[..., 4:] == patch[:1, :, 4:]).all()
    assert len(np.unique(patch[:, 0, :4], axis=0)) == 2
    assert len(np.unique(patch[0, :, 4:], axis=0)) == 3
    assert len(np.unique(x.round(5), axis=0)) == first + 6
    assert not any((patch[..., :4] == b[:4]).all(-1).any() for b in before)


def test_a_model_knows_its_grid():
    """Columns come from the image, and a token before the patches moves the first one."""
    for pooling in (MeanPooling(), ClassToken()):
        model = build(patches(VisionConfig, num_classes=3, pooling=pooling, position=Sinusoidal2D()), key=KEY)
        assert model.config.position == Sinusoidal2D(columns=3, first=int(pooling.extra_token))
    assert build(patches(position=Sinusoidal2D()), key=KEY).config.position == Sinusoidal2D(columns=3)


@pytest.mark.parametrize("before", [0, 1])
def test_resized_positions(before):
    """The same grid gives the same table, what stands before is kept, and a linear slope stays one."""
    table = np.random.default_rng(0).normal(size=(before + 6, 4)).astype(np.float32)
    same = resize_positions(jnp.asarray(table), (2, 3), (2, 3))
    chex.assert_trees_all_close(np.asarray(same), table, **CLOSE)
    larger = resize_positions(jnp.asarray(table), (2, 3), (4, 6))
    assert larger.shape == (before + 24, 4)
    np.testing.assert_array_equal(larger[:before], table[:before])
    slope = np.broadcast_to(np.arange(4.0, dtype=np.float32)[None, :, None], (4, 4, 1)).reshape(16, 1)
    finer = np.asarray(resize_positions(jnp.asarray(slope), (4, 4), (4, 8))).reshape(4, 8)
    np.testing.assert_allclose(np.diff(finer, axis=1)[:, 1:-1], 0.5, rtol=1e-5)
    np.testing.assert_allclose(finer, finer[:1].repeat(4, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [PatchConfig, AutoencoderConfig])
def test_hidden_patches_have_no_influence(kind):
    """Pixels of hidden patches leave the output as it is, bit for bit; those of shown ones do not."""
    params, run = pure(patches(kind))
    hidden = np.array([[True, False, False, False, True, False]])
    x, other = images(1), images(1, seed=1)
    where = np.asarray(join(jnp.asarray(np.broadcast_to(hidden[..., None], (1, 6, 8))), 2, 3))
    arguments = {"hidden_BH": jnp.array([[4, 0]])}
    out = run(params, jnp.asarray(x), **arguments)
    assert out.shape == x.shape
    np.testing.assert_array_equal(run(params, jnp.asarray(np.where(where, other, x)), **arguments), out)
    assert np.abs(run(params, jnp.asarray(np.where(where, x, other)), **arguments) - out).max() > 1e-3
    assert np.abs(run(params, jnp.asarray(x)) - out).max() > 1e-3


def test_an_autoencoder_encodes_shown_patches_and_decodes_all():
    """As an encoder of all patches that attends to the shown ones; hidden ones are one vector at their positions."""
    config = patches(AutoencoderConfig, num_decoder_layers=1, position=Learned(std=0.5))
    model, x = build(config, key=KEY), jnp.asarray(images())
    hidden = jnp.array([[3, 1], [0, 5]])
    shown = ~(np.asarray(hidden)[:, :, None] == np.arange(6)).any(1)
    states, _ = model.transform(model.embedding(x), Tokens.at(np.arange(6), valid=jnp.asarray(shown)))
    whole = jnp.where(shown[..., None], model.bridge(states), model.hidden()["token"])
    decoded, _ = model.decoder.transform(whole, Tokens.at(np.arange(6)))
    chex.assert_trees_all_close(model.predict_patches(x, hidden_BH=hidden), model.head(decoded), **CLOSE)
    assert model.decoder.config.num_layers == 1
    with pytest.raises(ConfigError, match=r"model\.num_decoder_layers: 1 do not fit"):
        patches(AutoencoderConfig, num_layers=2, num_decoder_layers=1, distinct_layers=2)


def test_images_are_joined_patches():
    """The output image is the predicted patches in their places; hidden places are told apart by position."""
    params, run = pure(patches())
    x, hidden = jnp.asarray(images(1)), jnp.arange(6)[None]
    predicted = run(params, x, hidden_BH=hidden, method="predict_patches")
    np.testing.assert_array_equal(cut(run(params, x, hidden_BH=hidden), 2), predicted)
    np.testing.assert_array_equal(run(params, x, method="patches"), cut(x, 2))
    assert np.abs(predicted[0, 0] - predicted[0, 1]).max() > 1e-3


# Layers and weights that are skipped.


def test_dropped_sequences_keep_their_mean():
    """Whole sequences are zero or divided by 1 - rate; over many keys the mean is the input. No key: the input."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(500, 2, 3)) + 2, jnp.float32)
    assert drop_sequences(x, 0.3, None) is x
    out = np.asarray(drop_sequences(x, 0.3, KEY))
    kept = (out != 0).all((1, 2))
    assert (kept | (out == 0).all((1, 2))).all()
    np.testing.assert_allclose(out[kept], np.asarray(x)[kept] / 0.7, rtol=1e-5)
    keys = jax.random.split(KEY, 2000)
    mean = jax.vmap(lambda key: drop_sequences(x[:4], jnp.float32(0.3), key))(keys).mean(0)
    np.testing.assert_allclose(mean, x[:4], rtol=0.08)


@pytest.mark.parametrize("layer", [0, 1, 3])
def test_the_rate_of_a_layer_rises_to_that_of_the_last(layer):
    """A sequence skips both sublayers of layer l of N with probability (rate · (l + 1)/N)²."""
    config = texts(num_layers=4, stochastic_depth=0.8, residual=NoNormResidual())
    block = Block(config, key=KEY)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3000, 2, 8)), jnp.float32)
    run = {"context": Context(Tokens.at(np.arange(2)), Causal())}
    out, _ = jax.jit(lambda key: block(x, layer=layer, key=key, **run))(KEY)
    skipped = (np.asarray(out) == np.asarray(x)).all((1, 2)).mean()
    rate = 0.8 * (layer + 1) / 4
    np.testing.assert_allclose(skipped, rate**2, atol=4 * (rate**2 / 3000) ** 0.5)


def test_stochastic_depth_without_a_key():
    """Evaluation skips nothing; with a key something is skipped."""
    plain, deep = (build(classes(stochastic_depth=rate), key=KEY) for rate in (0.0, 0.9))
    expected = plain(jnp.asarray(SOURCE))
    chex.assert_trees_all_close(deep(jnp.asarray(SOURCE)), expected, rtol=1e-6)
    chex.assert_trees_all_close(plain(jnp.asarray(SOURCE), key=KEY), expected, rtol=1e-6)
    outs = [deep(jnp.asarray(SOURCE), key=at(KEY, i)) for i in range(3)]
    assert max(np.abs(out - expected).max() for out in outs) > 1e-3


def test_attention_dropout_needs_weights():
    """A backend that never forms them is refused; exact attention drops them under a key."""
    with pytest.raises(ConfigError, match=r"mixer.dropout: chunked.* never forms the weights; use backend=none"):
        classes(**{"mixer.dropout": 0.1, "mixer.backend": Chunked()})
    model, plain = (build(classes(**{"mixer.dropout": rate}), key=KEY) for rate in (0.5, 0.0))
    chex.assert_trees_all_close(model(jnp.asarray(SOURCE)), plain(jnp.asarray(SOURCE)), rtol=1e-6)
    assert np.abs(model(jnp.asarray(SOURCE), key=KEY) - plain(jnp.asarray(SOURCE))).max() > 1e-4


# Prefix language models.


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
    config = texts(**{"head.tied": False, "mixer.backend": backend})
    params, apply = split(LanguageModel(config, key=KEY))
    tokens, mask = jnp.arange(length)[None], Causal() | Prefix(jnp.array([prefix]))

    def totals(table):
        logits = apply(params | {"embedding": {"table": table}}, tokens, mask=mask)
        return (logits[0] ** 2).sum(-1)

    jacobian = jax.jit(jax.jacrev(totals))(params["embedding"]["table"])
    return np.abs(np.asarray(jacobian)).max(-1)[:, :length]
