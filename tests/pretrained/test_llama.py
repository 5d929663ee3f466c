"""Llama, from the tensors of its file in a page of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer import pretrained
from transformer.models.build import pure_model
from transformer.pretrained.llama import LLAMA

safetensors = pytest.importorskip("safetensors.numpy")

FIELDS = {"vocab_size": 11, "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "head_dim": 4}
FIELDS |= {"num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 0.3, "attention_bias": False}
FIELDS |= {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "max_position_embeddings": 8}
TOKENS = np.array([3, 0, 7, 10, 7])


def rms_norm(x_LD, weight_D):
    return x_LD / np.sqrt((x_LD**2).mean(-1, keepdims=True) + 0.3) * weight_D


def rotated(x_LHK):
    """Features i and i + 2 of a head of 4, by position · 50^(-i/2)."""
    angles_L1F = np.arange(len(x_LHK))[:, None, None] * np.array([1.0, 50**-0.5])
    first, second = np.split(x_LHK, 2, -1)
    cos, sin = np.cos(angles_L1F), np.sin(angles_L1F)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(x_LD, tensors, prefix):
    q, k, v = ((x_LD @ tensors[f"{prefix}.{role}_proj.weight"].T).reshape(len(x_LD), -1, 4) for role in "qkv")
    k, v = (np.repeat(one, 3, axis=1) for one in (k, v))  # three heads share the keys and values of one
    scores_HLS = np.einsum("lhk,shk->hls", rotated(q), rotated(k)) / 2
    weights_HLS = np.exp(scores_HLS) * np.tri(len(x_LD))
    weights_HLS /= weights_HLS.sum(-1, keepdims=True)
    return np.einsum("hls,shk->lhk", weights_HLS, v).reshape(len(x_LD), -1) @ tensors[f"{prefix}.o_proj.weight"].T


def network(x_LD, tensors, prefix):
    gate, up, down = (tensors[f"{prefix}.{name}_proj.weight"] for name in ("gate", "up", "down"))
    gate_LF = x_LD @ gate.T
    return (gate_LF / (1 + np.exp(-gate_LF)) * (x_LD @ up.T)) @ down.T


def llama(tensors):
    """Logits (L, V), in float64."""
    x_LD = tensors["model.embed_tokens.weight"][TOKENS]
    for layer in ("model.layers.0", "model.layers.1"):
        normed_LD = rms_norm(x_LD, tensors[f"{layer}.input_layernorm.weight"])
        x_LD = x_LD + attention(normed_LD, tensors, f"{layer}.self_attn")
        normed_LD = rms_norm(x_LD, tensors[f"{layer}.post_attention_layernorm.weight"])
        x_LD = x_LD + network(normed_LD, tensors, f"{layer}.mlp")
    return rms_norm(x_LD, tensors["model.norm.weight"]) @ tensors["lm_head.weight"].T


def test_llama_in_numpy(tmp_path):
    """Every tensor does what its name says, and the logits are those of the formulas."""
    rng, config = np.random.default_rng(0), LLAMA.read_config(FIELDS)
    shapes, apply = pure_model(config)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape, scale=0.5), jnp.float32), shapes)
    pretrained.save(tmp_path / "model", config, params)
    tensors = safetensors.load_file(tmp_path / "model" / "model.safetensors")
    expected = llama({name: tensor.astype(np.float64) for name, tensor in tensors.items()})
    np.testing.assert_allclose(jax.jit(apply)(params, TOKENS[None])[0], expected, rtol=1e-4, atol=1e-4)
