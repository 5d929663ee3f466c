"""Classes of texts, and of tokens."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build
from transformer.models.classifier import ClassifierConfig
from transformer.models.pooling import ClassToken, PerToken, Pooling
from transformer.models.registers import register_parameters
from transformer.norms.norm import RMSNorm
from transformer.residuals.residual import NoNormResidual

KEY = jax.random.key(0)
SUBLAYERS = {"mixer": Attention(num_heads=2), "feed_forward": FeedForward(d_ff=8)}
SIZES = {"vocab_size": 11, "max_length": 6, "num_layers": 1, "d_model": 8} | SUBLAYERS
LAWS = {"initializer": Normal(0.4), "embedding": Embedding(initializer=Normal(0.4)), "scale_residual_init": False}
SIMPLE = {"norm": RMSNorm(), "feed_forward": FeedForward(d_ff=8, activation=ReLU())}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


SOURCE, TARGET = np.array([[7, 3, 9, 5]]), np.array([[1, 6, 2, 8, 4]])


def classes(**choices):
    return ClassifierConfig(**SIZES | LAWS | SIMPLE, num_classes=3).replace(choices)


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


def test_the_class_token_is_a_parameter_before_the_text():
    """It is what the logits are read from: with another value of it they are others, at the first position."""
    model = build(classes(pooling=ClassToken(), residual=NoNormResidual()), key=KEY)
    x = jnp.concatenate([model.pooling_params.token[...][None, None], model.embedding(jnp.asarray(SOURCE))], 1)
    states, _ = model.transform(x, Tokens.at(np.arange(5)))
    chex.assert_trees_all_close(model(jnp.asarray(SOURCE)), model.head(states[:, 0]), **CLOSE)


def test_registers_do_not_decay():
    assert not register_parameters(ClassifierConfig(registers=2))["registers"].decayed
