"""Connections that keep more than one stream."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.models.build import initial_params, pure_model
from transformer.models.config import ModelConfig
from transformer.residuals.multi_stream import (
    Backout,
    EmbeddingSkip,
    HyperConnections,
    ManifoldHyperConnections,
    ResiDual,
    UNet,
)
from transformer.residuals.residual import Depth, PreNorm

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)


def test_backout_takes_out_the_middle():
    """Of four blocks the input of the third, times the trained factor, is taken from the sum of all."""
    residual, stream, middle = Backout(0.25), (X, X), X
    for layer, connection in itertools.product(range(4), range(2)):
        stream = residual(stream, jnp.sin, {"input": lambda x: x}, {}, Depth(layer, 4, connection, 2, 8))
        middle = stream[0] if (layer, connection) == (1, 1) else middle
    whole = X
    for _ in range(8):
        whole = whole + jnp.sin(whole)
    params = {name: spec.initial_value(KEY) for name, spec in residual.shared_parameters().items()}
    chex.assert_trees_all_close(residual.end(stream, lambda x: x, params), whole - 0.25 * middle, atol=1e-5)


def test_two_streams_of_one_branch():
    """Both get the branch of the first, which alone is normalized on the way; the sum of the second at the end."""
    residual, (x, dual) = ResiDual(), (X, 2 * X)
    stream = residual((x, dual), jnp.sin, {"output": lambda x: 5 * x}, {}, Depth(0, 2, 0, 2, 4))
    branch = np.sin(np.asarray(X))
    chex.assert_trees_all_close(stream, (5 * (x + branch), dual + branch), atol=1e-5)
    chex.assert_trees_all_close(
        residual.end(stream, lambda x: 3 * x, {}), 5 * (x + branch) + 3 * (dual + branch), atol=1e-4
    )


def test_the_embedding_is_added_to_the_stream():
    """λ₁x + λ₂x₀ takes the place of x, in the branch too; x₀ stays."""
    first, params = X[:, ::-1], {"own": jnp.float32(2), "first": jnp.float32(3)}
    stream = EmbeddingSkip()((X, first), jnp.sin, {"input": lambda x: 2 * x}, params, Depth(1, 2, 0, 2, 4))
    mixed = np.asarray(2 * X + 3 * first)
    chex.assert_trees_all_close(stream, (mixed + np.sin(2 * mixed), first), atol=1e-5)


def test_blocks_read_their_mirror_images():
    """Of five blocks the fourth adds what came out of the second, and the fifth what came out of the first."""
    residual, whole, left = UNet(), np.asarray(X), []
    stream = residual.start(X, 5)
    for layer in range(5):
        whole = whole + (left[4 - layer] if layer > 2 else 0)
        for connection in range(2):
            stream = residual(stream, jnp.sin, {"input": lambda x: 2 * x}, {}, Depth(layer, 5, connection, 2, 10))
            whole = whole + np.sin(2 * whole)
        left.append(whole)
    chex.assert_trees_all_close(residual.end(stream, lambda x: x, {}), whole, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_streams_mixed_by_trained_matrices(dynamic):
    """One step by equations 2 to 5 and 10 to 13 of Zhu D. et al. 2024: stream i becomes Σⱼ Aⱼᵢ xⱼ + βᵢ f(Σⱼ αⱼ xⱼ)."""
    residual, rng = HyperConnections(streams=3, dynamic=dynamic), np.random.default_rng(0)
    params = {name: rng.normal(size=spec.shape).astype(np.float32) for name, spec in residual.parameters(16).items()}
    stream = rng.normal(size=(1, 8, 3, 16)).astype(np.float32)
    x = stream[0]
    # Connection 2 reads stream 2; trained numbers are added to what streams begin with.
    read, mix, write = np.array([0, 0, 1]) + params["read"], np.eye(3) + params["mix"], 1 + params["write"]
    if dynamic:
        normed = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        more = params["dynamic_mix_factor"] * np.tanh(normed @ params["dynamic_mix"])
        read, mix = read + more[..., 0], mix + more[..., 1:]
        write = write + params["dynamic_write_factor"] * np.tanh(normed @ params["dynamic_write"])
    read, mix, write = (np.broadcast_to(a, (8, *np.shape(a)[-rank:])) for a, rank in ((read, 1), (mix, 2), (write, 1)))
    branch = np.sin(2 * sum(read[:, j, None] * x[:, j] for j in range(3)))
    expected = [sum(mix[:, j, i, None] * x[:, j] for j in range(3)) + write[:, i, None] * branch for i in range(3)]
    params = {name: jnp.asarray(value) for name, value in params.items()}
    found = residual(jnp.asarray(stream), jnp.sin, {"input": lambda x: 2 * x}, params, Depth(1, 2, 0, 2, 4))
    chex.assert_trees_all_close(found[0], np.stack(expected, 1), atol=1e-3)


def test_of_trained_connections_those_that_depend_on_tokens_decay():
    """Zhu D. et al. 2024, section 4: the static ones do not, the dynamic ones do; factors are numbers."""
    decayed = {name for name, spec in HyperConnections(streams=3).parameters(16).items() if spec.decayed}
    assert decayed == {"dynamic_mix", "dynamic_write"}


def test_streams_mixed_by_doubly_stochastic_matrices():
    """One step by the formulas of Xie Z. et al. 2025: rows and columns sum to one, gates are σ and 2σ."""
    residual, depth, rng = ManifoldHyperConnections(streams=3), Depth(1, 2, 0, 2, 4), np.random.default_rng(0)
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


@pytest.mark.parametrize("residual", [HyperConnections(), ManifoldHyperConnections()], ids=str)
def test_dropout_of_the_embedding_is_one_for_all_streams(residual):
    """So that they begin as pre-norm in training too, but for what the last norm adds to a variance."""

    def answer(residual):
        config = ModelConfig(vocab_size=8, num_layers=1, d_model=16, max_length=8, dropout=0.5, residual=residual)
        _, apply = pure_model(config)
        return apply(initial_params(config, KEY), jnp.arange(8)[None], key=KEY)

    chex.assert_trees_all_close(answer(residual), answer(PreNorm()), atol=2e-3)


@pytest.mark.parametrize("residual", [HyperConnections(3), ManifoldHyperConnections(3)], ids=str)
@pytest.mark.parametrize(("layer", "connection"), [(0, 1), (1, 1), (2, 0)])
def test_initially_a_connection_reads_the_stream_of_its_number(residual, layer, connection):
    """Connection k, counted through all blocks, reads stream k modulo n; the others hardly or not at all."""
    params = {name: spec.initial_value(KEY) for name, spec in residual.parameters(16).items()}
    rng, read = np.random.default_rng(0), []
    stream = jnp.asarray(rng.normal(size=(1, 2, 3, 16)), jnp.float32)

    def remembered(x):
        read.append(x)
        return x

    residual(stream, remembered, {"input": lambda x: x}, params, Depth(layer, 3, connection, 2, 6))
    closest = [float(np.abs(np.asarray(read[0] - stream[:, :, i])).max()) for i in range(3)]
    assert int(np.argmin(closest)) == (2 * layer + connection) % 3
    assert min(closest) < 0.2


def test_what_depends_on_tokens_counts_for_little_at_first():
    """Its factors are 0.01 (Zhu D. et al. 2024)."""
    for kind in (HyperConnections(), ManifoldHyperConnections()):
        factors = {name: spec for name, spec in kind.parameters(8).items() if name.endswith("_factor")}
        assert len(factors) >= 2
        for spec in factors.values():
            np.testing.assert_allclose(spec.initial_value(KEY), 0.01, rtol=1e-6)
