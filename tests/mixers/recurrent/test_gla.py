import numpy as np
import pytest

import transformer as T


@pytest.mark.parametrize("key_heads", [None, 1])
@pytest.mark.parametrize("convolution", [None, 3])
def test_gla_is_its_recurrence(follows, plain, key_heads, convolution):
    """S ← diag(α) S + k vᵀ with α = σ(x W₁ W₂ + b)^(1/τ) (equation 3 and section 4.3), RMSNorm, SiLU gate."""
    H, K, V = 2, 3, 5

    def equations(x, p):
        q, k, v = plain.projected(x, p, H, key_heads)
        out = np.zeros_like(v)
        S = np.zeros((H, K, V))
        for t in range(len(x)):
            alpha = plain.sigmoid(x[t] @ p["forget_in"] @ p["forget_out"] + p["forget_bias"]) ** (1 / 2)
            alpha = np.repeat(alpha.reshape(-1, K), H // (key_heads or H), 0)
            for h in range(H):
                S[h] = np.diag(alpha[h]) @ S[h] + np.outer(k[t, h], v[t, h])
                out[t, h] = S[h].T @ q[t, h] / np.sqrt(K)
        normed = (plain.rms(out) * p["norm"]).reshape(len(x), -1)
        return (plain.silu(x @ p["gate"]) * normed) @ p["out"]

    heads = {"num_heads": H, "key_dim": K, "value_dim": V, "num_key_heads": key_heads, "chunk": 4}
    follows(T.GatedLinearAttention(**heads, rank=3, temperature=2.0, convolution=convolution), equations)


@pytest.mark.parametrize("bound", [0.0, 0.4])
def test_hgrn2_is_its_recurrence(follows, plain, bound):
    """S ← diag(f) S + (1 - f) vᵀ, y = Sᵀ q (section 3.2): the key is what is forgotten."""

    def equations(x, p):
        q, raw, v = plain.projected(x, p, heads=2)
        q, f = plain.silu(q), bound + (1 - bound) * plain.sigmoid(raw)
        out = np.zeros_like(v)
        S = np.zeros((2, 4, 4))
        for t, h in np.ndindex(v.shape[:2]):
            S[h] = np.diag(f[t, h]) @ S[h] + np.outer(1 - f[t, h], v[t, h])
            out[t, h] = S[h].T @ q[t, h]
        return (plain.rms(out) * p["norm"]).reshape(len(x), -1) @ p["out"]

    follows(T.HGRN2(num_heads=2, lower_bound=bound, chunk=4), equations)


def test_hgrn2_may_forget_nearly_everything(follows, plain):
    """A gate that rounds to 0 in 1 - f has a logarithm all the same."""

    def equations(x, p):
        q, raw, v = plain.projected(x, p, heads=2)
        assert plain.sigmoid(raw).min() < 1e-12
        q, f = plain.silu(q), plain.sigmoid(raw)
        out, S = np.zeros_like(v), np.zeros((2, 4, 4))
        for t, h in np.ndindex(v.shape[:2]):
            S[h] = np.diag(f[t, h]) @ S[h] + np.outer(1 - f[t, h], v[t, h])
            out[t, h] = S[h].T @ q[t, h]
        return (plain.rms(out) * p["norm"]).reshape(len(x), -1) @ p["out"]

    follows(T.HGRN2(num_heads=2, chunk=4), equations, stretch=20.0)


def test_little_is_forgotten_at_first(initial):
    """With a bias of 0 and weights near 0, α is about (1/2)^(1/16) = .958."""
    mixer = T.GatedLinearAttention()
    params = initial(mixer)
    np.testing.assert_array_equal(params["forget_bias"], 0.0)
    assert (params["forget_in"].shape[1], mixer.temperature) == (16, 16.0)


def test_memory(remembers):
    remembers(T.GatedLinearAttention(num_heads=2, key_dim=2), 2 * 2 * 4)
    remembers(T.HGRN2(num_heads=2), 2 * 4 * 4)


@pytest.mark.parametrize("bound", [-0.1, 1.0])
def test_errors(bound):
    with pytest.raises(T.ConfigError, match=rf"^hgrn2.lower_bound: {bound} is not in \[0, 1\)$"):
        T.HGRN2(lower_bound=bound)


@pytest.mark.parametrize("choices", [{"rank": 0}, {"temperature": 0.0}])
def test_sizes_are_positive(choices):
    name, value = next(iter(choices.items()))
    with pytest.raises(T.ConfigError, match=rf"^gla.{name}: {value} is not a positive number$"):
        T.GatedLinearAttention(**choices)
