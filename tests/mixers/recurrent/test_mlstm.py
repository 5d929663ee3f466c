import numpy as np
import pytest

import transformer as T

H, K, V = 2, 3, 5


@pytest.mark.parametrize(("cap", "stretch"), [(15.0, 1.0), (15.0, 20.0), (3.0, 4.0)])
def test_the_matrix_memory_with_its_running_maximum(follows, plain, cap, stretch):
    """Equations 19 to 27 as they are made stable (m = max(log f + m, log i)), which is what is computed without one.

    With a small eps the norm would undo what y is divided by.
    """

    def equations(x, p):
        q, k, v = plain.projected(x, p, H)
        gates = {g: cap * np.tanh((x @ p[g] + p[f"{g}_bias"]) / cap) for g in ("input", "forget")}
        y, C, n, m = np.zeros_like(v), np.zeros((H, K, V)), np.zeros((H, K)), np.full(H, -np.inf)
        for t, h in np.ndindex(v.shape[:2]):
            log_i, log_f = gates["input"][t, h], -plain.softplus(-gates["forget"][t, h])
            before, m[h] = m[h], max(log_f + m[h], log_i)
            i, f = np.exp(log_i - m[h]), np.exp(log_f + before - m[h])
            C[h] = f * C[h] + i * np.outer(k[t, h], v[t, h])
            n[h] = f * n[h] + i * k[t, h]
            query = q[t, h] / np.sqrt(K)
            y[t, h] = C[h].T @ query / max(abs(n[h] @ query), np.exp(-m[h]))
        normed = (plain.layer_norm(y, 1.0) * p["norm"]).reshape(len(x), -1)
        return (plain.sigmoid(x @ p["gate"]) * normed) @ p["out"]

    follows(T.MLSTM(num_heads=H, key_dim=K, value_dim=V, chunk=4, cap=cap, eps=1.0), equations, stretch=stretch)


def test_initial_gates(initial):
    """At first little is written, with exp(-10), and little forgotten: biases 3 to 6, one a head."""
    params = initial(T.MLSTM(num_heads=4))
    np.testing.assert_array_equal(params["input_bias"], -10.0)
    np.testing.assert_allclose(params["forget_bias"], [3, 4, 5, 6])


def test_memory(remembers):
    """One more value than the head has sums the keys."""
    remembers(T.MLSTM(num_heads=H, key_dim=K, value_dim=V), H * K * (V + 1))
    remembers(T.MLSTM(num_heads=H, convolution=4), H * 4 * (4 + 1) + 3 * 3 * 8)


def test_errors():
    with pytest.raises(T.ConfigError, match=r"^mlstm.cap: 0.0 is not a positive number$"):
        T.MLSTM(cap=0.0)
