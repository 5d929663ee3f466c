"""An encoder of the source, and a decoder of the target that attends to it."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.analysis.counts import parameter_count
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Chunked
from transformer.models.build import build
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.pattern import Alternate
from transformer.models.stack import Layers, Scanned, Unrolled
from transformer.norms.norm import RMSNorm
from transformer.objectives.objective import cross_entropy
from transformer.positions.absolute import Learned, QueryKeySinusoidal
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import DeepNorm, Depth, PreNorm, SubNorm
from transformer.residuals.scaled_branches import ReZero, TFixup

KEY = jax.random.key(0)
SUBLAYERS = {"mixer": Attention(num_heads=2), "feed_forward": FeedForward(d_ff=8)}
SIZES = {"vocab_size": 11, "max_length": 6, "num_layers": 1, "d_model": 8} | SUBLAYERS
LAWS = {"initializer": Normal(0.4), "embedding": Embedding(initializer=Normal(0.4)), "scale_residual_init": False}
SIMPLE = {"norm": RMSNorm(), "feed_forward": FeedForward(d_ff=8, activation=ReLU())}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SOURCE, TARGET = np.array([[7, 3, 9, 5]]), np.array([[1, 6, 2, 8, 4]])


def pairs(**choices):
    sizes = SIZES | {"source_vocab_size": 11, "max_source_length": 6}
    return EncoderDecoderConfig(**sizes | LAWS | SIMPLE, position=RoPE()).replace(choices)


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


def test_source_and_target_are_scaled_alike():
    """√D times the rows on both sides."""
    scaled, plain = (build(pairs(**{"embedding.scaled": own}), key=KEY) for own in (True, False))
    for name, tokens in (("embedding", TARGET), ("source_embedding", SOURCE)):
        expected = 8**0.5 * getattr(plain, name)(jnp.asarray(tokens))
        chex.assert_trees_all_close(getattr(scaled, name)(jnp.asarray(tokens)), expected, rtol=1e-6)


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
    assert config.residual.a(Depth(0, M, 0, 3, 3 * M)) == pytest.approx((3 * M) ** 0.25)
    assert config.residual.inner_gain(config.branches) == pytest.approx((12 * M) ** -0.25)
    assert pairs(residual=DeepNorm(2.0, 0.5)).encoder.residual == DeepNorm(2.0, 0.5)


@pytest.mark.parametrize(
    "pattern",
    [
        Alternate("residual", (DeepNorm(), PreNorm())),
        Alternate("feed_forward.residual", (DeepNorm(), None)),
        Alternate("feed_forward", (FeedForward(residual=DeepNorm()), SIMPLE["feed_forward"])),
    ],
    ids=str,
)
def test_deepnorm_that_alternates_in_an_encoder(pattern):
    """It has the numbers of an encoder beside a decoder wherever it stands."""
    sizes = {"num_encoder_layers": 6, "num_layers": 4}
    expected = pairs(**sizes, residual=DeepNorm()).encoder.residual
    first = pairs(**sizes, pattern=(pattern,)).encoder.layer_config(0)
    assert (first.residual if pattern.path == "residual" else first.feed_forward.residual) == expected


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


def test_encoder_and_decoder_add_to_the_loss():
    """Experts that all take all tokens say 1 in every layer."""
    experts = TopKExperts(2, top=2, d_ff=8, balance=1.0, router_z=0.0)
    params, apply = split(build(pairs(feed_forward=experts, num_encoder_layers=1, num_layers=2), key=KEY))
    _, penalty = jax.jit(functools.partial(apply, with_penalty=True))(params, SOURCE, TARGET)
    np.testing.assert_allclose(penalty, 3.0, rtol=1e-5)
