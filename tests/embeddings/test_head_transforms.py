"""What is done to states before they become logits."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.activations.activation import ReLU
from transformer.core.modules import split
from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.score_mods import SoftCap
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.norms.norm import RMSNorm, layer_norm, rms_norm

TINY = ModelConfig(vocab_size=11, max_length=8, d_model=8, mixer=Attention(num_heads=2), num_layers=2)
TOKENS = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], jnp.int32)


def pure(config: ModelConfig, seed: int = 0):
    """Random parameters, none of which is at a special value, and the model."""
    params, apply = split(LanguageModel(config, key=jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape, scale=0.3), a.dtype), params)
    return params, jax.jit(apply, static_argnames="method")


def test_what_happens_to_the_states_by_hand():
    """cap · tanh((norm(relu(xW + b)) · tableᵀ + bias) / cap)."""
    transform = DenseTransform(ReLU(), RMSNorm(eps=1e-3))
    params, run = pure(TINY.replace(head=Head(transform=transform, bias=True, score_mod=SoftCap(0.5))))
    plain = {name: value for name, value in params.items() if name != "logits"}
    states = split(LanguageModel(TINY, key=jax.random.key(0)))[1]
    read, table = params["logits"]["transform"], params["embedding"]["table"]
    # The plain model answers x · tableᵀ, and the table has full rank.
    x = states(plain, TOKENS) @ jnp.linalg.pinv(table.T)
    hidden = rms_norm(jax.nn.relu(x @ read["kernel"] + read["bias"]), scale_D=read["norm_scale"], eps=1e-3)
    expected = 0.5 * jnp.tanh((hidden @ table.T + params["logits"]["output"]["bias"]) / 0.5)
    chex.assert_trees_all_close(run(params, TOKENS), expected, rtol=1e-3, atol=1e-4)


def test_layer_norm_of_a_transform():
    """Its parameters are those of the norm, and the norm is the last thing."""
    transform, rng = DenseTransform(), np.random.default_rng(0)
    specs = transform.parameters(4)
    assert set(specs) == {"kernel", "bias", "norm_scale", "norm_bias"}
    params = {name: jnp.asarray(rng.normal(size=spec.shape), jnp.float32) for name, spec in specs.items()}
    x = jnp.asarray(rng.normal(size=(1, 2, 4)), jnp.float32)
    hidden = jax.nn.gelu(x @ params["kernel"] + params["bias"], approximate=False)
    expected = layer_norm(hidden, scale_D=params["norm_scale"], bias_D=params["norm_bias"])
    chex.assert_trees_all_close(transform(x, params), expected, rtol=1e-5, atol=1e-6)


def test_a_transform_without_a_bias():
    x, kernel = jnp.ones((1, 1, 4)), 0.5 * jnp.eye(4)
    transform = DenseTransform(ReLU(), RMSNorm(scale=False), bias=False)
    assert set(transform.parameters(4)) == {"kernel"}
    chex.assert_trees_all_close(transform(x, {"kernel": kernel}), jnp.ones((1, 1, 4)), rtol=1e-5)


def test_the_factor_is_on_what_the_output_projection_reads():
    """Behind the transform, whose norm would undo it, and not on the bias: logits - bias are a quarter."""
    params, whole = pure(TINY.replace(head=Head(transform=DenseTransform(), bias=True)))
    quarter = pure(TINY.replace(head=Head(transform=DenseTransform(), bias=True, scale=0.25)))[1]
    bias = params["logits"]["output"]["bias"]
    chex.assert_trees_all_close(
        4 * (quarter(params, TOKENS) - bias), whole(params, TOKENS) - bias, rtol=1e-4, atol=1e-5
    )
