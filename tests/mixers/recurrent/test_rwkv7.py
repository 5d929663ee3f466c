import numpy as np
import pytest

import transformer as T

H, K, V = 2, 3, 5
MIXER = T.RWKV7(num_heads=H, key_dim=K, value_dim=V, rank=3, chunk=4)


def test_time_mixing_is_equations_three_to_twenty_two(follows, plain):
    def equations(x, p):
        L = len(x)
        before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
        x_r, x_d, x_k, x_v, x_a, x_g = (x + (before - x) * mu for mu in p["mixture"])

        def heads(y):
            return y.reshape(L, H, -1)

        r, k, v = heads(x_r @ p["query"]), x_k @ p["key"], heads(x_v @ p["value"])
        a = plain.sigmoid(x_a @ p["rate_in"] @ p["rate_out"] + p["rate_bias"])
        w = np.exp(-np.exp(-0.5) * plain.sigmoid(np.tanh(x_d @ p["decay_in"]) @ p["decay_out"] + p["decay_bias"]))
        kappa = plain.unit(heads(k * p["erased"]))
        k = heads(k * (1 + (a - 1) * p["written"]))
        a, w = heads(a), heads(w)
        out, S = np.zeros((L, H, V)), np.zeros((H, V, K))  # the paper's state: values by keys
        for t, h in np.ndindex(L, H):
            S[h] = S[h] @ (np.diag(w[t, h]) - np.outer(kappa[t, h], a[t, h] * kappa[t, h])) + np.outer(v[t, h], k[t, h])
            normed = plain.layer_norm(S[h] @ r[t, h], 64e-5) * p["norm"][h] + p["norm_bias"][h]
            out[t, h] = normed + (r[t, h] @ (p["bonus"][h] * k[t, h])) * v[t, h]
        gate = plain.sigmoid(x_g @ p["gate_in"]) @ p["gate_out"]
        return (gate * out.reshape(L, -1)) @ p["out"]

    follows(MIXER, equations)


def test_published_initial_shares_of_the_token_before(initial):
    """Those of the first layer in the authors' code; what is of low rank begins at its bias."""
    params = initial(T.RWKV7(num_heads=4, key_dim=16, value_dim=16))
    powers = {"query": 0.2, "decay": 0.9, "key": 0.9, "value": 0.4, "rate": 0.9, "gate": 0.2}
    D = params["mixture"].shape[1]
    for row, power in zip(params["mixture"], powers.values(), strict=True):
        np.testing.assert_allclose(row, 1 - (np.arange(D) / D) ** power, rtol=1e-5, atol=1e-6)
    for name in ("decay_in", "rate_in", "gate_in"):
        np.testing.assert_array_equal(params[name], 0.0)


def test_published_initial_decays(initial):
    """The first layer's: decay biases rise from -6.5 to -1.5, so that exp(-e^-½ σ) is from .999 to .9."""
    params = initial(T.RWKV7(num_heads=4, key_dim=16, value_dim=16))
    i = np.arange(64) / 63
    np.testing.assert_allclose(params["decay_bias"], -6.5 + 5 * i**0.85, rtol=1e-5)
    kept = np.exp(-np.exp(-0.5) / (1 + np.exp(-params["decay_bias"])))
    assert 0.999 < kept[0] < 0.9992
    assert 0.89 < kept[-1] < 0.9
    np.testing.assert_allclose(params["erased"], 0.85, rtol=1e-6)
    np.testing.assert_array_equal(params["written"], 1.0)
    for name in ("rate_bias", "bonus", "norm_bias"):
        np.testing.assert_array_equal(params[name], 0.0)


def test_memory(remembers):
    """The state, and the token before."""
    remembers(MIXER, H * K * V + 8)


def test_errors():
    with pytest.raises(T.ConfigError, match=r"^rwkv7.rank: 0 is not a positive number$"):
        T.RWKV7(rank=0)
