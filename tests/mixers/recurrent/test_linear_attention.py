import numpy as np
import pytest

import transformer as T


def test_linear_attention_is_equation_eighteen(follows, plain):
    """Σ_s φ(q_t)·φ(k_s) v_s / Σ_s φ(q_t)·φ(k_s) with φ = 1 + elu, as sums over all earlier tokens."""

    def feature(x):
        return np.where(x > 0, x + 1, np.exp(x))

    def equations(x, p):
        q, k, v = plain.projected(x, p, heads=2)
        out = np.zeros_like(v)
        for t, h in np.ndindex(v.shape[:2]):
            weights = [feature(q[t, h]) @ feature(k[s, h]) for s in range(t + 1)]
            out[t, h] = sum(weights[s] * v[s, h] for s in range(t + 1)) / sum(weights)
        return out.reshape(len(x), -1) @ p["out"]

    follows(T.LinearAttention(num_heads=2, chunk=4), equations)
    follows(T.LinearAttention(num_heads=2, chunk=4, convolution=3), equations)


@pytest.mark.parametrize("decays", ["slopes", "retnet"])
def test_lightning_attention_and_retention(follows, plain, decays):
    """y_t = Σ_s λ^(t - s) (q_t·k_s) v_s, the parallel form of RetNet's equation 5; norm, then gate."""
    published = {"slopes": [np.exp(-(2.0**-4)), np.exp(-(2.0**-8))], "retnet": [1 - 1 / 32, 1 - 1 / 64]}

    def equations(x, p):
        q, k, v = (plain.silu(part) for part in plain.projected(x, p, heads=2))
        out = np.zeros_like(v)
        for t, h in np.ndindex(v.shape[:2]):
            for s in range(t + 1):
                out[t, h] += published[decays][h] ** (t - s) * (q[t, h] @ k[s, h]) / 2 * v[s, h]
        normed = (plain.rms(out) * p["norm"]).reshape(len(x), -1)
        return (plain.sigmoid(x @ p["gate"]) * normed) @ p["out"]

    follows(T.LightningAttention(num_heads=2, chunk=4, decays=decays), equations)


def test_published_decays():
    """ALiBi's slopes of 8 heads are 1/2 … 1/256, and of 6 those of 4 and two between; RetNet keeps 31/32, 63/64, …"""
    slopes = T.LightningAttention(num_heads=8).log_decays()
    np.testing.assert_allclose(slopes, [-(0.5**h) for h in range(1, 9)], rtol=1e-6)
    slopes = T.LightningAttention(num_heads=6).log_decays()
    np.testing.assert_allclose(slopes, -np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]), rtol=1e-6)
    kept = np.exp(T.LightningAttention(num_heads=3, decays="retnet").log_decays())
    np.testing.assert_allclose(kept, [31 / 32, 63 / 64, 127 / 128], rtol=1e-6)


def test_memory(remembers):
    remembers(T.LinearAttention(num_heads=2), 2 * 4 * (4 + 1))
    remembers(T.LightningAttention(num_heads=2, key_dim=3, value_dim=5), 2 * 3 * 5)
    remembers(T.LightningAttention(num_heads=4, num_key_heads=2, convolution=3), 4 * 2 * 2 + 2 * (4 + 4 + 8))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"num_heads": 0}, r"^lightning_attention.num_heads: 0 is not a positive number$"),
        ({"chunk": 0}, r"^lightning_attention.chunk: 0 is not a positive number$"),
        ({"key_dim": -1}, r"^lightning_attention.key_dim: -1 is not a positive number$"),
        ({"convolution": 0}, r"^lightning_attention.convolution: 0 is not a positive number$"),
    ],
)
def test_errors(choices, message):
    with pytest.raises(T.ConfigError, match=message) as raised:
        T.LightningAttention(**choices)
    assert "\n" not in str(raised.value)


def test_errors_of_a_model(config):
    with pytest.raises(T.ConfigError, match=r"^lightning_attention.num_key_heads: 4 heads are no multiple of 3$"):
        config(T.LightningAttention(num_key_heads=3))
    message = "^linear_attention.num_heads: d_model 8 is no multiple of 3 heads; set key_dim and value_dim$"
    with pytest.raises(T.ConfigError, match=message):
        config(T.LinearAttention(num_heads=3))
    config(T.LinearAttention(num_heads=3, key_dim=2, value_dim=2))
    with pytest.raises(
        T.ConfigError, match=r"^lightning_attention.decays: unknown value 'alibi'; known: retnet, slopes$"
    ):
        config(T.LightningAttention(decays="alibi"))


def test_a_number_for_a_norm_that_is_not_there_is_refused():
    with pytest.raises(T.ConfigError, match=r"^linear_attention\.eps: 0\.1, but there is no norm of the output"):
        T.LinearAttention(eps=0.1)
