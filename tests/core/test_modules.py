"""Pure form of a model: parameters as a nested dict, initial values by path, and their specifications."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transformer.core.errors import ConfigError
from transformer.core.int8 import Int8
from transformer.core.modules import Dense, Parameters, abstract, at, below, fused, initialize, overlay, specs, split
from transformer.core.parameters import ONES, FanIn, Normal, Parameter
from transformer.feed_forwards.feed_forward import FeedForward, FeedForwardLayer
from transformer.mixers.attention.attention import Attention
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel

TINY = ModelConfig(vocab_size=9, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2))
TOKENS = jnp.asarray(np.arange(8)[None], jnp.int32)


def build(config=TINY):
    return lambda key: LanguageModel(config, key=key)


def flat(params):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}


def initial(config, seed=0):
    return flat(initialize(build(config), jax.random.key(seed)))


def test_apply_is_the_call():
    """The pure function of the parameters is the model's call, with its keyword arguments."""
    model = build()(jax.random.key(0))
    params, apply = split(model)
    positions = jnp.asarray(np.arange(8)[None] // 2)
    expected = model(TOKENS, positions_BL=positions)
    chex.assert_trees_all_close(jax.jit(apply)(params, TOKENS, positions_BL=positions), expected, atol=1e-6)
    zeros = apply(jax.tree.map(jnp.zeros_like, params), TOKENS)
    assert not zeros.any()
    assert np.abs(expected).max() > 0


def test_parameters_are_plain():
    """A nested dict of float32 arrays, keyed by attribute names."""
    params, _ = split(build()(jax.random.key(0)))
    assert set(params) == {"embedding", "position", "blocks", "final_norm"}
    assert params["blocks"]["kinds"]["0"]["feed_forward"]["out"]["kernel"].shape == (2, 64, 16)
    leaves = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, nnx.Variable))
    assert all(isinstance(leaf, jax.Array) and leaf.dtype == jnp.float32 for leaf in leaves)


def test_abstract_computes_nothing():
    """Shapes and dtypes without arrays, and the same pure function."""
    params, (shapes, apply) = initialize(build(), jax.random.key(0)), split(abstract(build()))
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(shapes))
    chex.assert_trees_all_equal_shapes_and_dtypes(params, shapes)
    assert jax.eval_shape(apply, shapes, TOKENS).shape == (1, 8, 9)


def test_initialize_is_the_module():
    """Pure initialization gives the module's values, under `jit` and mapped over keys too."""
    chex.assert_trees_all_equal(initialize(build(), jax.random.key(3)), split(build()(jax.random.key(3)))[0])

    def one(key):
        return initialize(lambda key: FeedForwardLayer(FeedForward(), TINY, key=key), key)

    keys = jax.random.split(jax.random.key(0), 2)
    mapped = jax.jit(jax.vmap(one))(keys)
    chex.assert_trees_all_close(jax.tree.map(lambda a: a[1], mapped), one(keys[1]), rtol=1e-5, atol=1e-7)


def test_initial_scale():
    """The scale multiplies random values, and leaves ones and zeros."""
    one, two = (initialize(build(), jax.random.key(0), scale) for scale in (1.0, 3.0))
    for path, spec in flat(specs(abstract(build()))).items():
        factor = 3.0 if spec.initializer.random else 1.0
        chex.assert_trees_all_close(flat(two)[path], factor * flat(one)[path], rtol=1e-6)
    assert np.array_equal(two["final_norm"]["params"]["scale"], np.ones(16))


def test_specs_mirror_the_parameters():
    """Each leaf has its law and whether it decays: matrices do, norms and biases do not."""
    params, laws = flat(initialize(build(), jax.random.key(0))), flat(specs(abstract(build())))
    assert set(laws) == set(params)
    for path, law in laws.items():
        assert params[path].shape[-len(law.shape) :] == law.shape
        assert law.decayed == (not path.endswith(("['scale']", "['bias']"))), path


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "rmsnorm"},
        {"residual": "sandwich"},
        {"residual": "post"},
        {"position": "rope"},
        {"feed_forward.activation": "glu(gate=silu)"},
        {"mixer.backend": "chunked"},
        {"layers": "scanned(remat='full')"},
        {"head.tied": False},
        {"mixer.bias": ("query", "key", "value", "out"), "feed_forward.bias": True},
        {"mixer.num_kv_heads": 1},
        {"dropout": 0.1},
        {"dtype": "bfloat16"},
        {"max_length": 16},
    ],
    ids=str,
)
def test_variants_share_initial_values(changes):
    """Two variants under one seed agree, bit for bit, in every parameter of the same path and shape."""
    base, variant = initial(TINY), initial(TINY.replace(changes))
    shared = [path for path in base if path in variant and base[path].shape == variant[path].shape]
    assert sum("kernel" in path for path in shared) >= 4
    for path in shared:
        np.testing.assert_array_equal(base[path], variant[path], err_msg=path)


def test_depth_shares_layers():
    """A deeper model begins with the layers of the shallower one, where their laws agree."""
    shallow, deep = initial(TINY), initial(TINY.replace(num_layers=3))
    for path in (p for p in shallow if "blocks" in p and "['out']" not in p):
        np.testing.assert_array_equal(shallow[path], deep[path][:2], err_msg=path)


def test_seeds_differ():
    """Another seed changes every random parameter; within a model no two random parameters are alike."""
    laws = flat(specs(abstract(build())))
    random = [path for path, law in laws.items() if law.initializer.random]
    here, there = initial(TINY, 0), initial(TINY, 1)
    for path in random:
        assert np.abs(here[path] - there[path]).min() > 0
    kernels = [here[path] for path in random if here[path].shape == (2, 16, 16)]
    assert len(kernels) == 4
    for i, kernel in enumerate(kernels):
        for other in kernels[:i]:
            assert np.abs(kernel / kernel.std() - other / other.std()).min() > 0


def test_given_parameters_in_their_places():
    """Leaves are replaced one by one; what does not fit is named."""
    params = {"a": {"b": jnp.zeros(2), "c": jnp.zeros(3)}, "d": jnp.zeros(1)}
    given = {"a": {"c": jnp.ones(3)}}
    chex.assert_trees_all_equal(overlay(params, given), {"a": {"b": jnp.zeros(2), "c": jnp.ones(3)}, "d": jnp.zeros(1)})
    for wrong, message in (
        ({"a": {"e": jnp.ones(1)}}, "no parameter a/e"),
        ({"a": {"c": jnp.ones(2)}}, r"parameter a/c is float32\[3\], and float32\[2\] is given"),
        ({"a": {"c": jnp.ones((4, 3))}}, r"float32\[4, 3\] is given; of several replicas, `run\.params\(0\)` are"),
        ({"d": jnp.ones(1, jnp.int32)}, r"parameter d is float32\[1\], and int32\[1\] is given"),
        ({"d": {"x": jnp.ones(1)}}, r"parameter d is float32\[1\], and a tree is given"),
        ({"d": Int8.of(jnp.ones((1, 1)))}, r"parameter d is float32\[1\], and a Int8 is given"),
    ):
        with pytest.raises(ConfigError, match=message):
            overlay(params, wrong)


def test_the_pure_model_of_a_config():
    """The shapes and the function of the model that it describes; one function for equal configs."""
    shapes, apply = pure_model(TINY)
    params, own = split(build()(jax.random.key(0)))
    chex.assert_trees_all_equal_shapes_and_dtypes(shapes, params)
    np.testing.assert_array_equal(jax.jit(apply)(params, TOKENS), jax.jit(own)(params, TOKENS))
    assert pure_model(TINY.replace())[1] is apply


def test_numpy_parameters_are_parameters():
    params, apply = split(build()(jax.random.key(0)))
    np.testing.assert_array_equal(apply(jax.tree.map(np.asarray, params), TOKENS), apply(params, TOKENS))


def test_a_tree_that_is_not_the_model_s_is_refused():
    params, apply = split(build()(jax.random.key(0)))
    norm = params["final_norm"]
    for wrong, message in (
        ({n: p for n, p in params.items() if n != "final_norm"}, "parameter final_norm is missing"),
        (params | {"final_nrm": norm}, "no parameter final_nrm; did you mean 'final_norm'?"),
        (
            params | {"final_norm": {"params": {"scale": jnp.ones(1), "bias": jnp.ones(16)}}},
            r"final_norm/params/scale is \[1\], not \[16\]",
        ),
        (
            jax.tree.map(lambda a: jnp.stack([a, a]), params),
            r"\[2, .*of several replicas, `run\.params\(0\)` are those",
        ),
        ({}, r"parameter \w+ is missing$"),
        (jax.tree.map(lambda a: a.astype(jnp.complex64), params), r"^parameter .* is complex64, and a model computes"),
    ):
        with pytest.raises(ConfigError, match=message):
            apply(wrong, TOKENS)


def test_a_parameter_may_have_any_name():
    names = ("names", "specs", "kernel")
    own = Parameters({name: Parameter((2,), ONES) for name in names}, key=KEY)
    assert sorted(own()) == sorted(names)


KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


def test_what_is_no_key_and_no_module():
    with pytest.raises(ConfigError, match=r"^key: 0 is no random key; jax\.random\.key\(0\) is one$"):
        LanguageModel(TINY, key=0)  # pyright: ignore[reportArgumentType] wrong on purpose
    with pytest.raises(ConfigError, match=r"^specs: a module is needed, and dict is given; build"):
        specs({})  # pyright: ignore[reportArgumentType] wrong on purpose
    with pytest.raises(ConfigError, match=r"^split: a module is needed, and ModelConfig is given; build"):
        split(ModelConfig())  # pyright: ignore[reportArgumentType] wrong on purpose


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
