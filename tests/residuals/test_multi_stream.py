"""Connections that keep more than one stream."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from transformer.residuals.multi_stream import Backout, ManifoldHyperConnections
from transformer.residuals.residual import Depth

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


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
