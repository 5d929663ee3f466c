"""Parameters and floating-point operations of a model, without building it."""

import math
from collections.abc import Callable

import jax
from flax import nnx

from transformer.config.model import ModelConfig
from transformer.models import pure
from transformer.models.language_model import LanguageModel


def parameter_count(config: ModelConfig, build: Callable[..., nnx.Module] = LanguageModel) -> int:
    """Number of parameters, tied ones once."""
    params = pure.split(pure.abstract(lambda key: build(config, key=key)))[0]
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def forward_flops_per_token(config: ModelConfig, length: int | None = None) -> float:
    """Operations of the matrix products of one forward pass, per token, at `length` tokens (max_length).

    A multiplication and an addition count as two. Exact attention computes every score, also those
    the causal mask hides, and so they are counted; norms, activations and softmax are not.
    """
    D, F, H, G, K = config.d_model, config.ff_width, config.num_heads, config.kv_heads, config.head_size
    S = config.max_length if length is None else length
    projections = D * (H + 2 * G) * K + H * K * D
    attention = 2 * S * H * K
    feed_forward = (config.activation.branches + 1) * D * F
    return 2.0 * (config.num_layers * (projections + attention + feed_forward) + D * (config.vocab_size or 0))


def train_flops_per_token(config: ModelConfig, length: int | None = None) -> float:
    """Forward and backward: each product of the forward pass has two in the backward pass."""
    return 3 * forward_flops_per_token(config, length)
