"""Parameters for the other pairing of rotary features: published code pairs (0, 1), (2, 3), … or halves of a head."""

import dataclasses
import itertools

import jax
import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.modules import Params
from transformer.core.weights import LowRank
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.exclusive import XSA
from transformer.mixers.attention.gates import HeadScale, OutputGate, ValueGate
from transformer.mixers.attention.head_norms import QKNorm, ValueNorm
from transformer.mixers.attention.normalizers import Performer
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.rotary import RoPE

ROTATED = {
    *itertools.product(("attention", "cross_attention"), ("query", "key")),
    ("parts", QKNorm.name),
}
"""Modules of attention, and what in them has the features of queries or keys; poolings have a query, too."""
UNORDERED = (ValueNorm, HeadScale, OutputGate, ValueGate, XSA)
"""Parts of attention that queries and keys do not go through."""


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
    if not isinstance(rope, RoPE) or any(kind.position != rope for kind in config.kinds):
        raise ConfigError(f"model.position: features of {rope} are not paired; only those of rope are, in all layers")
    attentions = [(kind.attention, kind) for kind in config.kinds if kind.attention is not None]
    head_dims = {attention.sizes(kind).head_dim for attention, kind in attentions}
    if len(head_dims) != 1 or not all(_plain(attention) for attention, _ in attentions):
        raise ConfigError(
            "mixer: heads, projection, normalizer and parts have to be plain, or the order of features matters"
        )
    if not isinstance(config.weights, LowRank | None) and config.weights.parameters(config.d_model, 1):
        raise ConfigError(f"model.weights: which parameters of {config.weights} have features is not known here")
    if rope.interleaved == interleaved:
        return config, params
    (head_dim,) = head_dims
    order = _order(head_dim, int(head_dim * rope.fraction), interleaved)

    def moved(path, leaf):
        keys = [entry.key for entry in path]
        if ROTATED.isdisjoint(itertools.pairwise(keys)) or keys[-2:] == ["weights", "down"]:
            return leaf
        heads = leaf.reshape(*leaf.shape[:-1], -1, head_dim)
        return heads[..., order].reshape(leaf.shape)

    changed = jax.tree.map_with_path(moved, params)
    return config.replace(position=dataclasses.replace(rope, interleaved=interleaved)), changed


def _plain(attention: Attention) -> bool:
    """Whether queries and keys are projections whose features can have any order."""

    def free(part):
        if not isinstance(part, QKNorm):
            return isinstance(part, UNORDERED)
        return isinstance(part.norm, LayerNorm) or (isinstance(part.norm, RMSNorm) and part.norm.fraction == 1)

    projected = attention.projection is None or attention.projection.query is not None
    summed = not isinstance(attention.normalizer, Performer)
    return attention.heads is None and projected and summed and all(map(free, attention.parts))


def _order(head_dim: int, rotated: int, interleaved: bool) -> np.ndarray:
    """Which feature comes first, second, …; those that are not rotated stay."""
    order = np.arange(head_dim)
    order[:rotated] = order[:rotated].reshape(2, -1).T.reshape(-1)
    return order if interleaved else np.argsort(order)
