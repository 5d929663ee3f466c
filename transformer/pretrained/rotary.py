"""Parameters for the other pairing of rotary features: published code pairs (0, 1), (2, 3), … or halves of a head."""

import dataclasses
import itertools

import jax
import numpy as np

from transformer.core.modules import Params
from transformer.core.values import ConfigError
from transformer.mixers.attention.heads import PlainHeads
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm, NoNorm, RMSNorm
from transformer.positions.rotary import RoPE

ATTENTION, ROTATED = ("attention", "cross_attention"), ("query", "key", "query_norm", "key_norm")
"""Modules of attention, and what in them has the features of queries or keys; poolings have a query, too."""


def with_pairs(config: ModelConfig, params: Params, *, interleaved: bool) -> tuple[ModelConfig, Params]:
    """The same model with features of queries and keys in the order that `RoPE(interleaved=…)` pairs.

    Scores sum over the features of a head, so their order is free as long as queries and keys have the same.

    Args:
      config: with `position=RoPE(…)` in all layers.
      params: of the model; the result has copies of what changes.
      interleaved: whether pairs are features (0, 1), (2, 3), …; otherwise i and i + n.

    Raises:
      ConfigError: the positions are others, or something else depends on the order of features.
    """
    rope = config.position
    if not isinstance(rope, RoPE) or config.pattern.position:
        raise ConfigError(f"model.position: features of {rope} are not paired; only those of rope are, in all layers")
    norm = config.qk_norm
    plain = isinstance(norm, NoNorm | LayerNorm) or (isinstance(norm, RMSNorm) and norm.fraction == 1)
    if config.heads != PlainHeads() or config.convolution is not None or not plain:
        raise ConfigError("model: heads, convolution and qk_norm have to be plain, or the order of features matters")
    if rope.interleaved == interleaved:
        return config, params
    order = _order(config.head_size, int(config.head_size * rope.fraction), interleaved)

    def moved(path, leaf):
        names = [entry.key for entry in path]
        if not any(a in ATTENTION and b in ROTATED for a, b in itertools.pairwise(names)):
            return leaf
        heads = leaf.reshape(*leaf.shape[:-1], -1, config.head_size)
        return heads[..., order].reshape(leaf.shape)

    changed = jax.tree.map_with_path(moved, params)
    return config.replace(position=dataclasses.replace(rope, interleaved=interleaved)), changed


def _order(head_size: int, rotated: int, interleaved: bool) -> np.ndarray:
    """Which feature comes first, second, …; those that are not rotated stay."""
    order = np.arange(head_size)
    order[:rotated] = order[:rotated].reshape(2, -1).T.reshape(-1)
    return order if interleaved else np.argsort(order)
