"""A stack is its layers, however they are run: loop and scan agree, and recomputing changes its cost only."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transformer.activations.activation import ReLU
from transformer.core.arrays import compiled_for
from transformer.core.modules import make_parameter, split
from transformer.core.parameters import ONES, Normal, Parameter
from transformer.embeddings.embedding import Embedding
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Causal, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Fused
from transformer.mixers.mixer import Aux, Context
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.models.stack import Scanned, Stack, Unrolled
from transformer.models.transformer import Block
from transformer.norms.norm import RMSNorm
from transformer.testing import elsewhere
from transformer.testing.subject import small

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)
TOKENS = Tokens.at(np.arange(8))
SMALL = ModelConfig(vocab_size=8, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2))


def config(**choices):
    """A small config, with choices by dotted path."""
    return SMALL.replace(choices)


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
        return x + self.scale[...] * jax.random.normal(key, x.shape), Aux(penalty=(1 + layer).astype(jnp.float32))


@pytest.mark.parametrize("layers", [Unrolled(), Scanned()], ids=str)
def test_every_layer_has_its_own_key(layers):
    """The layer of a number is called with the key of its number below that of the stack; penalties are summed."""
    out = Stack([lambda key: Noise(key=key)], 3, layers, key=KEY)(X, context=Context(TOKENS), key=KEY)
    drawn = [jax.random.normal(jax.random.fold_in(KEY, i), X.shape) for i in range(3)]
    chex.assert_trees_all_close(out[:2], (X + sum(drawn), jnp.float32(1 + 2 + 3)), atol=1e-5)


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


LAYERS = [how(remat=remat) for how in (Unrolled, Scanned) for remat in ("none", "dots", "full")]
TEXTS = jnp.asarray(np.arange(16).reshape(2, 8) % 7, jnp.int32)


@functools.cache
def gradient(layers, num_layers):
    """The parameters, and the logits' square with its gradients as a function of them; dropout is on."""
    sizes = {"vocab_size": 7, "max_length": 8, "num_layers": num_layers, "d_model": 16, "mixer": Attention(num_heads=2)}
    choices = {"norm": RMSNorm(), "feed_forward": FeedForward(activation=ReLU()), "position": None, "dropout": 0.25}
    laws = {"initializer": Normal(0.3), "embedding": Embedding(initializer=Normal(0.3))}
    config = ModelConfig(**sizes, **choices, **laws, layers=layers)
    params, apply = split(LanguageModel(config, key=jax.random.key(0)))

    def loss(params):
        return (apply(params, TEXTS, key=jax.random.key(1, impl="unsafe_rbg")) ** 2).mean()

    return params, jax.value_and_grad(loss)


@functools.cache
def result(layers):
    params, run = gradient(layers, 2)
    return jax.device_get(jax.jit(run)(params))


@pytest.mark.parametrize("layers", LAYERS[1:], ids=str)
def test_equals_unrolled(layers):
    """Values and gradients are those of the plain loop, with the same dropout in every layer."""
    assert result(layers)[0] > 0.1
    chex.assert_trees_all_close(result(layers), result(LAYERS[0]), atol=2e-5, rtol=1e-4)


def program(layers, num_layers):
    params, run = gradient(layers, num_layers)
    return str(jax.make_jaxpr(run)(params))


def test_scan_does_not_grow():
    """A second layer makes the unrolled program longer, and the scanned one not."""
    for how, grows in ((Unrolled, True), (Scanned, False)):
        one, two = (program(how(), num_layers) for num_layers in (1, 2))
        assert (" scan[" in two) == (not grows)
        assert (two.count("dot_general[") > one.count("dot_general[")) == grows


@pytest.mark.parametrize("how", [Unrolled, Scanned])
def test_rematerialization_recomputes_what_it_says(how):
    """`full` computes all products again, `dots` two, queries with keys and weights with values; other things both."""
    products = {remat: program(how(remat=remat), 1).count("dot_general[") for remat in ("none", "dots", "full")}
    roots = {remat: program(how(remat=remat), 1).count(" rsqrt") for remat in ("none", "dots", "full")}
    assert products["none"] + 2 == products["dots"] < products["full"]
    assert roots["none"] < roots["dots"] == roots["full"]


def test_what_a_kernel_of_a_gpu_computed_is_kept(monkeypatch):
    """`dots` does not compute attention by cuDNN again, and `full` does; nothing is run."""
    monkeypatch.setattr("transformer.functional.fused_attention.has_cuda", lambda: True)
    monkeypatch.setattr("jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version", lambda: 91000)
    kernels = {}
    for remat in ("none", "dots", "full"):
        config = small(dtype="bfloat16", layers=Scanned(remat=remat), **{"mixer.backend": Fused()})
        function, shapes = elsewhere.gradient(config)
        with compiled_for("cuda"):
            kernels[remat] = str(jax.make_jaxpr(function)(*shapes)).count("dot_product_attention_fwd")
    assert kernels == {"none": 1, "dots": 1, "full": 2}
