"""Cross-entropy: numpy, label smoothing, z-loss, and gradients."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.objectives.objective import cross_entropy

V = 7
LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, V)) * 3, jnp.float32)
LABELS = jnp.array([[0, 3, 6], [1, 1, 5]])
TARGETS = np.eye(V)[np.asarray(LABELS)]


def reference(logits, smoothing=0.0, z_loss=0.0):
    """Expected -log p under smoothed targets, plus z_loss · log²Z, in float64."""
    logits = np.asarray(logits, np.float64)
    log_z = np.log(np.exp(logits).sum(-1))
    targets = (1 - smoothing) * TARGETS + smoothing / V
    return (targets * (log_z[..., None] - logits)).sum(-1) + z_loss * log_z**2


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_equals_numpy(smoothing, z_loss):
    """One loss per label, float32, in nats."""
    loss = cross_entropy(LOGITS, LABELS, label_smoothing=smoothing, z_loss=z_loss)
    assert loss.dtype == jnp.float32
    chex.assert_trees_all_close(loss, reference(LOGITS, smoothing, z_loss).astype(np.float32), atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_gradient(smoothing, z_loss):
    """softmax · (1 + 2 z_loss log Z) minus the smoothed targets."""
    gradient = jax.grad(lambda x: cross_entropy(x, LABELS, label_smoothing=smoothing, z_loss=z_loss).sum())(LOGITS)
    logits = np.asarray(LOGITS, np.float64)
    log_z = np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.exp(logits - log_z) * (1 + 2 * z_loss * log_z) - (1 - smoothing) * TARGETS - smoothing / V
    chex.assert_trees_all_close(gradient, expected.astype(np.float32), atol=1e-5)


def test_a_common_shift_changes_only_the_z_loss():
    """Logits moved by 50 have the same loss; z-loss sees the normalizer itself."""
    chex.assert_trees_all_close(cross_entropy(LOGITS + 50, LABELS), cross_entropy(LOGITS, LABELS), atol=1e-4)
    moved = cross_entropy(LOGITS + 50, LABELS, z_loss=1e-2)
    chex.assert_trees_all_close(moved, reference(np.asarray(LOGITS) + 50, z_loss=1e-2).astype(np.float32), rtol=1e-5)


def test_large_logits():
    """A certain answer costs nothing, a certain error its margin; neither overflows."""
    logits = jnp.zeros((2, V)).at[:, 2].set(1e4)
    labels = jnp.array([2, 0])
    np.testing.assert_allclose(cross_entropy(logits, labels), [0.0, 1e4])
    gradient = jax.grad(lambda x: cross_entropy(x, labels, label_smoothing=0.1, z_loss=1e-4).sum())(logits)
    assert np.isfinite(gradient).all()


def test_bfloat16_logits_are_summed_in_float32():
    """The loss of rounded logits is exact for them: 4,096 equal logits cost log 4096."""
    loss = cross_entropy(jnp.zeros((1, 4096), jnp.bfloat16), jnp.array([0]))
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, [np.log(4096)], rtol=1e-6)
