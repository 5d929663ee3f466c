"""Modules: named keys, joined products, embeddings, residual wiring, and stacks of layers."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transformer.activations.activation import GLU, ReLU
from transformer.core.arrays import dropout
from transformer.core.modules import Dense, Parameters, at, below, fused, make_parameter, split
from transformer.core.parameters import ONES, ZEROS, FanIn, Normal, Parameter
from transformer.core.values import ConfigError
from transformer.embeddings.embedding import EmbeddingLayer
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Causal, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Context, Outcome
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.models.stack import Scanned, Stack, Unrolled
from transformer.models.transformer import Block
from transformer.norms.norm import LayerNorm, NormLayer, RMSNorm, layer_norm, norm_layer
from transformer.positions.absolute import QueryKeySinusoidal, StepSinusoidal
from transformer.positions.rotary import RoPE
from transformer.residuals.multi_stream import Backout, ManifoldHyperConnections
from transformer.residuals.residual import Depth, NoNormResidual, PostNorm, PreNorm, ResidualLayer, SandwichNorm

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)
TOKENS = Tokens.at(np.arange(8))


SMALL = ModelConfig(vocab_size=8, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2))


def config(**choices):
    """A small config, with choices by dotted path."""
    return SMALL.replace(choices)


def attention(mixer, **choices):
    return mixer.build(config(mixer=mixer, **choices), key=KEY)


def attend(module):
    return jax.jit(lambda x: module(x, context=Context(TOKENS, Causal()))[0])(X)


def test_keys_are_named():
    """A key depends on the path alone: composed or at once, numbers or their digits, None stays None."""
    same = [at(at(KEY, "layer"), 3, "query"), at(KEY, "layer", 3, "query"), below(KEY, "layer", "3", "query")]
    assert len({tuple(np.asarray(jax.random.key_data(k))) for k in same}) == 1
    names = [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("a", 0), ("a", 1), ("ab",)]
    assert len({tuple(np.asarray(jax.random.key_data(at(KEY, *n)))) for n in names}) == len(names)
    assert below(None, "a") is None


def test_parameters_do_not_depend_on_the_order_of_calls():
    """The same names in another order, or among others, have the same values."""
    specs = {"a": Parameter((3, 2)), "b": Parameter((3, 2), FanIn()), "c": Parameter((2,), ONES)}
    values = Parameters(specs, key=KEY)()
    reordered = Parameters(dict(reversed(specs.items())), key=KEY)()
    chex.assert_trees_all_equal(values, reordered)
    chex.assert_trees_all_equal({"b": values["b"]}, Parameters({"b": specs["b"]}, key=KEY)())
    assert np.abs(values["a"] - values["b"]).max() > 0
    assert list(Parameters({}, key=KEY)()) == []


@pytest.mark.parametrize(
    ("initializer", "mean", "deviation"),
    [(Normal(0.02), 0.0, 0.02), (FanIn(), 0.0, 0.1), (ZEROS, 0.0, 0.0), (ONES, 1.0, 0.0)],
    ids=str,
)
def test_initial_values(initializer, mean, deviation):
    """float32 with the mean and standard deviation of the law; 1/√fan-in for the first axis."""
    values = initializer(KEY, (100, 50))
    assert values.dtype == jnp.float32
    np.testing.assert_allclose([values.mean(), values.std()], [mean, deviation], atol=0.05 * deviation + 1e-7)


def test_decay_is_for_matrices():
    """Unless it says otherwise, a parameter decays from two axes up."""
    decayed = [Parameter(shape).decayed for shape in ((), (3,), (3, 3), (2, 3, 3))]
    assert decayed == [False, False, True, True]
    assert Parameter((3,), decay=True).decayed
    assert not Parameter((3, 3), decay=False).decayed


@pytest.mark.parametrize("bias", [False, True])
def test_joined_products(bias):
    """Layers of one input computed together are the layers one by one, biases included."""
    layers = [Dense(16, size, initializer=Normal(1.0), bias=bias, key=at(KEY, size)) for size in (4, 8, 2)]
    for layer in layers if bias else []:
        layer.bias[...] = layer.bias[...] + 2.0
    for together, layer in zip(fused(X, layers), layers, strict=True):
        expected = np.asarray(X) @ np.asarray(layer.kernel[...]) + (2.0 if bias else 0.0)
        chex.assert_trees_all_close(together, expected, atol=1e-5)
        chex.assert_trees_all_close(layer(X), expected, atol=1e-5)


def test_norm_layer_is_its_norm():
    """The module applies the config's function to its own parameters."""
    for norm in (LayerNorm(), LayerNorm(bias=False, eps=0.1), RMSNorm()):
        layer = NormLayer(norm, 16, "norm", key=KEY)
        params = {name: jnp.full(spec.shape, 3.0) for name, spec in norm.parameters(16).items()}
        for name, value in params.items():
            getattr(layer.params, name)[...] = value
        chex.assert_trees_all_equal(layer(X), norm(X, params))
    assert norm_layer(None, 16, "norm", key=KEY) is None


@pytest.mark.parametrize("tied", [True, False])
def test_embedding(tied):
    """Rows of the table; logits from the same table or from one of their own, always float32."""
    model = LanguageModel(config(**{"head.tied": tied}, dtype="bfloat16"), key=KEY)
    embedding, tokens = model.embedding, jnp.array([[3, 0, 3]])
    assert (model.output is None) == tied
    rows = embedding(tokens)
    assert rows.dtype == jnp.bfloat16
    chex.assert_trees_all_equal(rows[0], embedding.table[...][jnp.array([3, 0, 3])].astype(jnp.bfloat16))
    output = embedding if tied else model.output
    table = np.asarray(output.table[...])
    logits = output.logits(X.astype(jnp.bfloat16))
    assert logits.dtype == jnp.float32
    chex.assert_trees_all_close(logits, np.asarray(X) @ table.T, atol=2e-3, rtol=2e-2)
    states, _ = model.transform(rows, Tokens.at(np.arange(3)))
    chex.assert_trees_all_equal(model(tokens), output.logits(states))
    assert tied or np.abs(table - np.asarray(embedding.table[...])).min() > 0


@pytest.mark.parametrize("token", [8, 1000, -1])
def test_token_outside_the_vocabulary(token):
    """It gives NaN, and never another token's row."""
    rows = EmbeddingLayer(8, config(), key=KEY)(jnp.array([[1, token]]))
    assert np.isfinite(rows[0, 0]).all()
    assert np.isnan(rows[0, 1]).all()


def test_embedding_needs_a_vocabulary():
    """Without a vocabulary size the error names the field."""
    with pytest.raises(ConfigError, match=r"model\.vocab_size"):
        EmbeddingLayer(None, config(), key=KEY)


def test_feed_forward():
    """activation(x W) W_out in numpy, with one branch and with two; branch 0 is shared by both."""
    kinds = (FeedForward(activation=activation) for activation in (ReLU(), GLU(gate=ReLU())))
    one, two = (kind.build(config(feed_forward=kind), key=KEY) for kind in kinds)
    w, out = (np.asarray(k[...]) for k in (one.branches[0].kernel, one.out.kernel))
    chex.assert_trees_all_close(one(X)[0], np.maximum(np.asarray(X) @ w, 0) @ out, atol=1e-5)
    v = np.asarray(two.branches[1].kernel[...])
    expected = (np.maximum(np.asarray(X) @ w, 0) * (np.asarray(X) @ v)) @ out
    chex.assert_trees_all_close(two(X)[0], expected, atol=1e-5)
    assert w.shape == (16, 64)
    assert len(two.branches) == 2


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (NoNormResidual(), lambda x: x + np.sin(x)),
        (PreNorm(), lambda x: x + np.sin(2 * x)),
        (PostNorm(), lambda x: 5 * (x + np.sin(x))),
        (SandwichNorm(), lambda x: x + 3 * np.sin(2 * x)),
    ],
    ids=["no_norm", "pre", "post", "sandwich"],
)
def test_residual_wiring(residual, expected):
    """Where the norms sit: multiplication by 2, 3 and 5 in place of the input, branch and output norm."""
    connection, depth = ResidualLayer(residual, LayerNorm(), 16, "connection", key=KEY), Depth(0, 2, 0, 2)
    assert set(connection.norms) == set(residual.norms)
    norms = {"input": lambda x: 2 * x, "branch": lambda x: 3 * x, "output": lambda x: 5 * x}
    out = residual(X, jnp.sin, {name: norms[name] for name in residual.norms}, {}, depth)
    chex.assert_trees_all_close(out, expected(np.asarray(X)), atol=1e-5)
    real = residual(X, jnp.sin, dict.fromkeys(residual.norms, layer_norm), {}, depth)
    chex.assert_trees_all_close(connection(X, jnp.sin, depth), real, atol=1e-6)


def test_backout_takes_out_the_middle():
    """Of four blocks the input of the third, times the trained factor, is taken from the sum of all."""
    residual, stream, middle = Backout(0.25), (X, X), X
    for layer, connection in itertools.product(range(4), range(2)):
        stream = residual(stream, jnp.sin, {"input": lambda x: x}, {}, Depth(layer, 4, connection, 2))
        middle = stream[0] if (layer, connection) == (1, 1) else middle
    whole = X
    for _ in range(8):
        whole = whole + jnp.sin(whole)
    params = {name: spec.initial_value(KEY) for name, spec in residual.shared_parameters().items()}
    chex.assert_trees_all_close(residual.end(stream, lambda x: x, params), whole - 0.25 * middle, atol=1e-5)


def test_streams_mixed_by_doubly_stochastic_matrices():
    """One step by the formulas of Xie Z. et al. 2025: rows and columns sum to one, gates are σ and 2σ."""
    residual, depth, rng = ManifoldHyperConnections(streams=3), Depth(1, 2, 0, 2), np.random.default_rng(0)
    specs = residual.parameters(16)
    params = {name: jnp.asarray(rng.normal(size=spec.shape), jnp.float32) for name, spec in specs.items()}
    stream = jnp.asarray(rng.normal(size=(1, 8, 3, 16)), jnp.float32)
    flat = np.asarray(stream).reshape(8, -1)
    dynamic = flat / np.sqrt((flat**2).mean(-1, keepdims=True) + 1e-6) @ params["dynamic"]
    parts = zip(("read", "write", "mix"), np.split(np.asarray(dynamic), [3, 6], -1), strict=True)
    read, write, mix = (params[name] + params[f"{name}_factor"] * part for name, part in parts)
    read = jax.nn.sigmoid(read + np.array([-4.0, -4.0, 4.0]))  # connection 2 reads stream 2
    mix = np.exp(np.asarray(mix).reshape(8, 3, 3) + 8 * np.eye(3))
    for _ in range(500):
        mix /= mix.sum(1, keepdims=True)
        mix /= mix.sum(2, keepdims=True)
    branch = np.sin(np.einsum("ln,lnd->ld", read, stream[0]))
    added = 2 * np.asarray(jax.nn.sigmoid(write))[..., None] * branch[:, None]
    expected = np.einsum("lnm,lmd->lnd", mix, stream[0]) + added
    long = dataclasses.replace(residual, iterations=500)
    found = long(stream, jnp.sin, {"input": lambda x: x}, params, depth)
    chex.assert_trees_all_close(found[0], expected, atol=1e-3)


def test_every_block_is_told_its_number():
    """Sinusoids of position and step (Dehghani et al. 2018, equation 6), also where blocks share their parameters."""
    own = config(position=StepSinusoidal(), mixer=None, num_layers=3, distinct_layers=1)
    block, x = Block(own, key=KEY), X
    for layer in range(3):
        angle = np.arange(8)[:, None] / 10_000 ** (np.arange(8) / 8)
        step = (layer + 1) / 10_000 ** (np.arange(8) / 8)
        added = np.stack([np.sin(angle) + np.sin(step), np.cos(angle) + np.cos(step)], -1).reshape(8, 16)
        moved = x + added.astype(np.float32)
        x, _ = block(x, context=Context(TOKENS), layer=layer, key=None)
        plain = Block(own.replace(position=None), key=KEY)
        chex.assert_trees_all_close(x, plain(moved, context=Context(TOKENS), layer=layer, key=None)[0], atol=1e-5)


def test_grouped_heads_are_repeated_heads():
    """Two key-value heads for four query heads equal four heads with each key and value twice."""
    grouped, full = (attention(Attention(num_heads=4, num_kv_heads=kv), position=RoPE()) for kv in (2, None))
    assert grouped.key.kernel.shape == (16, 8)
    for name in ("key", "value"):
        kernel = np.asarray(getattr(grouped, name).kernel[...]).reshape(16, 2, 4)
        getattr(full, name).kernel[...] = jnp.asarray(kernel.repeat(2, axis=1).reshape(16, 16))
    chex.assert_trees_all_close(attend(grouped), attend(full), atol=1e-6)


def test_positions_that_enter_queries_and_keys_only():
    """They change the output, and with queries and keys switched off they do not reach the values."""
    module, plain = (attention(Attention(num_heads=2), position=p) for p in (QueryKeySinusoidal(), RoPE()))
    assert np.abs(attend(module) - attend(plain)).max() > 1e-6
    for layer in (module, plain):
        layer.query.kernel[...] = jnp.zeros((16, 16))
    chex.assert_trees_all_close(attend(module), attend(plain), atol=1e-6)


def test_stack_is_its_layers():
    """Indexing gives the layer built under the key of its number; running them in turn is the stack."""
    stack = Stack([lambda key: Block(config(), key=key)], 2, Unrolled(), key=KEY)
    run = {"context": Context(TOKENS, Causal()), "key": None}
    x = X
    for i, layer in enumerate(stack):
        built = Block(config(), key=jax.random.fold_in(KEY, i))
        chex.assert_trees_all_close(split(layer)[0], split(built)[0], rtol=1e-6)
        x, _ = layer(x, layer=i, **run)
    chex.assert_trees_all_close(stack(X, **run)[:2], (x, jnp.float32(0)), atol=1e-6)
    chex.assert_trees_all_equal(split(stack[-1])[0], split(stack[1])[0])
    assert len(stack) == 2
    with pytest.raises(IndexError, match="layer 2 of 2"):
        stack[2]


class Noise(nnx.Module):
    """A layer that adds what its key draws."""

    def __init__(self, *, key):
        self.scale = make_parameter(Parameter((1,), ONES), key)

    def __call__(self, x, *, context, layer, key):
        return x + self.scale[...] * jax.random.normal(key, x.shape), Outcome(penalty=(1 + layer).astype(jnp.float32))


@pytest.mark.parametrize("layers", [Unrolled(), Scanned()], ids=str)
def test_every_layer_has_its_own_key(layers):
    """The layer of a number is called with the key of its number below that of the stack; penalties are summed."""
    out = Stack([lambda key: Noise(key=key)], 3, layers, key=KEY)(X, context=Context(TOKENS), key=KEY)
    drawn = [jax.random.normal(jax.random.fold_in(KEY, i), X.shape) for i in range(3)]
    chex.assert_trees_all_close(out[:2], (X + sum(drawn), jnp.float32(1 + 2 + 3)), atol=1e-5)


def test_dropout_in_a_block():
    """Both sublayers are dropped out, each under the key of its name, before they join the stream."""
    block = Block(config(dropout=0.5, residual=NoNormResidual(), initializer=Normal(1.0)), key=KEY)
    run = {"context": Context(TOKENS, Causal())}
    x = X + dropout(block.attention(X, **run)[0], 0.5, at(KEY, "attention"))
    x = x + dropout(block.feed_forward(x)[0], 0.5, at(KEY, "feed_forward"))
    chex.assert_trees_all_close(block(X, layer=0, **run, key=KEY)[0], x, rtol=1e-5, atol=1e-4)


def test_each_shared_expert_drops_features_of_its_own():
    """Two that take each other away leave nothing, but what one of them drops and the other does not."""
    kind = TopKExperts(shared=2, dropout=0.5)
    module = kind.build(config(feed_forward=kind), key=KEY)
    first, second = module.shared
    module.out[...] = jnp.zeros_like(module.out[...])
    for own, other in zip(first.branches, second.branches, strict=True):
        other.kernel[...] = own.kernel[...]
    second.out.kernel[...] = -first.out.kernel[...]
    still, trained = (module(X, context=Context(TOKENS), key=key)[0] for key in (None, KEY))
    np.testing.assert_allclose(still, 0, atol=1e-6)
    assert np.abs(trained).max() > 1e-4


def test_deeper_blocks_begin_smaller():
    """Matrices of block l are divided by √l (Zhang B. et al. 2019); gains and biases are not."""
    models = (config(num_layers=3, scale_init_by_depth=by_depth) for by_depth in (False, True))
    plain, scaled = (split(LanguageModel(own, key=KEY))[0] for own in models)

    def compared(path, left, right):
        matrix = path[-1].key == "kernel" and "blocks" in jax.tree_util.keystr(path)
        factor = np.sqrt([1, 2, 3]).reshape(3, 1, 1) if matrix else 1.0
        np.testing.assert_allclose(right * factor, left, rtol=1e-6)

    jax.tree.map_with_path(compared, plain, scaled)
    assert set(plain["blocks"]["kinds"]["0"]["attention"]["query"]) == {"kernel"}


def test_stack_stores_one_array_per_parameter():
    """Every parameter carries the leading layer axis, and no two layers are equal."""
    params, _ = split(Stack([lambda key: Block(config(), key=key)], 3, Unrolled(), key=KEY))
    for path, leaf in jax.tree.leaves_with_path(params):
        assert leaf.shape[0] == 3, path
    kernel = params["kinds"]["0"]["attention"]["query"]["kernel"]
    assert np.abs(kernel[0] - kernel[1]).min() > 0


def test_modules_can_be_printed():
    """`repr` shows the names of the parameters."""
    text = repr(Block(config(), key=KEY))
    assert "query" in text
    assert "feed_forward" in text
    assert isinstance(Block(config(), key=KEY), nnx.Module)
