import numpy as np
import pytest

import transformer as T

H, G, K, V = 4, 2, 3, 5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("convolution", [None, 3])
def test_the_state_space_of_mamba2(follows, plain, convolution, bias):
    """S ← exp(-Δ e^a) S + Δ B xᵀ, y = Sᵀ C + d x; the gate comes before the norm, which is of each group of heads."""

    def equations(x, p):
        C, B, u = plain.projected(x, p, H, G, bias=plain.beside(p, "bias") if "query_bias" in p else 0.0)
        delta = plain.softplus(x @ p["step"] + p["step_bias"])
        y, S = np.zeros_like(u), np.zeros((H, K, V))
        for t, h in np.ndindex(u.shape[:2]):
            S[h] = np.exp(-np.exp(p["fading"][h]) * delta[t, h]) * S[h] + delta[t, h] * np.outer(B[t, h], u[t, h])
            y[t, h] = S[h].T @ C[t, h] + p["skip"][h] * u[t, h]
        y = y.reshape(len(x), -1) * plain.silu(x @ p["gate"])
        return (plain.rms(y.reshape(len(x), G, -1)).reshape(len(x), -1) * p["norm"]) @ p["out"]

    sizes = {"num_heads": H, "num_key_heads": G, "key_dim": K, "value_dim": V, "chunk": 4}
    follows(T.Mamba2(**sizes, convolution=convolution, convolution_bias=bias), equations)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_may_have_a_bias(initial, bias):
    assert ("query_bias" in initial(T.Mamba2(convolution_bias=bias))) == bias
    assert "query_bias" not in initial(T.Mamba2(convolution=None, convolution_bias=bias))


def test_published_initial_values(initial):
    """exp(a) uniform in [1, 16], softplus(b) log-uniform in [.001, .1], d = 1, taps within ±1/√W."""
    params = initial(T.Mamba2(num_heads=64, key_dim=2, value_dim=2))
    rate, step = np.exp(params["fading"]), np.log1p(np.exp(params["step_bias"]))
    assert 1 <= rate.min() < 3 < 14 < rate.max() <= 16
    assert 7 < rate.mean() < 10
    assert 0.999e-3 <= step.min() < 2e-3 < 0.05 < step.max() <= 0.1001
    assert 0.003 < np.median(step) < 0.03  # .01 is the middle of the logarithms
    np.testing.assert_array_equal(params["skip"], 1.0)
    np.testing.assert_array_equal(params["query_bias"], 0.0)
    assert 0.45 < np.abs(params["query_taps"]).max() <= 0.5


def test_memory(remembers):
    remembers(T.Mamba2(num_heads=H, num_key_heads=G, key_dim=K, value_dim=V), H * K * V + 3 * (2 * G * K + H * V))


def test_errors(config):
    with pytest.raises(T.ConfigError, match=r"^mamba2.num_key_heads: 4 heads are no multiple of 3$"):
        config(T.Mamba2(num_key_heads=3))
