"""How activations, gradients and updates change with depth, and how far the influence of a token reaches."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.analysis.activations import intervene, run_with_cache
from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Apply, Params


def root_mean_square(x_BLD: jax.Array) -> jax.Array:
    """√mean x² over features, (B, L); of `blocks.*.resid_post` it shows how the stream grows."""
    return jnp.sqrt(jnp.square(x_BLD.astype(jnp.float32)).mean(-1))


def rank_collapse(x_BLD: jax.Array) -> jax.Array:
    """‖x - mean over tokens‖ / ‖x‖, (B,): 0 where all tokens are one vector (Dong et al. 2021, equation 2).

    Axes before B, such as that of layers, stay. (The paper takes the nearest matrix of equal rows in another norm; in
    this norm it is the mean.)
    """
    x_BLD = x_BLD.astype(jnp.float32)
    apart = x_BLD - x_BLD.mean(-2, keepdims=True)
    return jnp.linalg.norm(apart, axis=(-2, -1)) / jnp.linalg.norm(x_BLD, axis=(-2, -1))


def norms_by_layer(tree: Params, *, replicas: bool = False) -> dict[str, np.ndarray]:
    """The norm of every leaf of the blocks in every layer, (N,) by path, such as `attention/query/kernel`.

    Args:
      tree: parameters, or gradients or updates of them, of a model or one side of it; it has `blocks`.
      replicas: whether the leaves have a leading axis of runs; then the norms are (R, N).
    """
    if "blocks" not in tree:
        sides = [name for name, side in tree.items() if isinstance(side, Mapping) and "blocks" in side]
        raise ConfigError(f"norms_by_layer: the tree has no blocks{nearest('blocks', sides)}")
    kinds = tree["blocks"]["kinds"]
    norms: dict[str, np.ndarray] = {}
    for kind, blocks in kinds.items():
        for path, leaf in jax.tree.leaves_with_path(blocks):
            name = "/".join(str(part.key) for part in path)
            values = np.asarray(leaf, np.float64)
            values = values if replicas else values[None]
            own = np.sqrt(np.square(values).reshape(*values.shape[:2], -1).sum(-1))
            whole = np.full((len(own), own.shape[1] * len(kinds)), np.nan)
            row = norms.setdefault(name, whole)
            row[:, int(kind) :: len(kinds)] = own
    return norms if replicas else {name: row[0] for name, row in norms.items()}


def receptive_field(
    apply: Apply, params: Params, *args: Any, key: jax.Array, to: str = "blocks.0.resid_pre", **kwargs: Any
) -> jax.Array:
    """How much the output at each token changes with each token: ‖∂ output_l / ∂ x_s‖, (L, S).

    (Luo et al. 2016, for the activation `to`; root mean square over the batch.) The norm of a Jacobian J is
    estimated without forming it: the mean of ‖Jᵀv‖² over random signs v is ‖J‖².

    Args:
      apply: from `split`; returns (B, L, …).
      params: its parameters.
      args: its inputs.
      key: key of the random signs.
      to: name of an activation (B, S, …).
      kwargs: keyword arguments of `apply`.

    Raises:
      ConfigError: `to` is several activations, or it or the output has no axis of tokens after that of the batch.
    """
    found = run_with_cache(apply, params, *args, names=to, **kwargs)[1]
    if to not in found:
        raise ConfigError(f"receptive_field: to {to!r} is several activations, such as {next(iter(found))}")
    start = found[to]
    out, backward = jax.vjp(lambda x: intervene(apply, {to: lambda _: x})(params, *args, **kwargs), start)
    no_tokens = out.ndim < 2 or (out.ndim == 2 and out.shape != start.shape[:2])
    if no_tokens or to.endswith((".scores", ".pattern")):
        raise ConfigError(f"receptive_field: the output is {out.shape} and {to} {start.shape}, not (B, L, …)")
    signs = jax.random.rademacher(key, out.shape, out.dtype)

    def seen_from(position):
        (gradient,) = backward(jnp.zeros_like(out).at[:, position].set(signs[:, position]))
        return jnp.sqrt(jnp.square(gradient).reshape(*gradient.shape[:2], -1).sum(-1).mean(0))

    return jax.lax.map(seen_from, jnp.arange(out.shape[1]))
