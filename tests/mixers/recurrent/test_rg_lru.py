import numpy as np
import pytest

import transformer as T


@pytest.mark.parametrize("power", [8.0, 2.0])
@pytest.mark.parametrize("width", [None, 12])
def test_the_recurrent_block_of_griffin(follows, plain, width, power):
    """Equations 1 to 4, in the block of figure 2: gelu(x W_y) beside convolution and recurrence."""
    X = width or 8

    def gelu(x):
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def in_blocks(u, p, name):
        blocks = np.zeros((X, X))
        for i in range(2):
            own = slice(i * X // 2, (i + 1) * X // 2)
            blocks[own, own] = p[name][i]
        return plain.sigmoid(u @ blocks + p[f"{name}_bias"])

    def equations(x, p):
        u = plain.convolved(x @ p["into"] + p["into_bias"], p["convolution"]) + p["convolution_bias"]
        hidden, out = np.zeros(X), []
        for row, branch in zip(u, gelu(x @ p["gate"] + p["gate_bias"]), strict=True):
            r, i = in_blocks(row, p, "forget"), in_blocks(row, p, "input")
            a = plain.sigmoid(p["kept"]) ** (power * r)
            hidden = a * hidden + np.sqrt(1 - a**2) * (i * row)
            out.append((branch * hidden) @ p["out"] + p["out_bias"])
        return np.array(out)

    follows(T.RGLRU(hidden_dim=width, blocks=2, convolution=3, power=power), equations)


@pytest.mark.parametrize("power", [8.0, 2.0])
def test_initially_a_is_uniform(initial, power):
    """a^c = σ(Λ)^c in [.9, .999] (section 2.4), for every c."""
    kept = (1 / (1 + np.exp(-initial(T.RGLRU(hidden_dim=128, power=power))["kept"]))) ** power
    assert 0.9 - 1e-4 <= kept.min() < 0.91
    assert 0.99 < kept.max() <= 0.999 + 1e-4
    assert 0.935 < kept.mean() < 0.965


def test_memory(remembers):
    """The state, and what the convolution has read."""
    remembers(T.RGLRU(), 8 + 3 * 8)
    remembers(T.RGLRU(hidden_dim=12, convolution=2), 12 + 12)


def test_errors(config):
    for name in ("blocks", "convolution", "power", "hidden_dim"):
        with pytest.raises(T.ConfigError, match=rf"^rg_lru.{name}: 0 is not a positive number$"):
            T.RGLRU(**{name: 0})
    with pytest.raises(T.ConfigError, match=r"^rg_lru.blocks: 8 features are no multiple of 3 blocks$"):
        config(T.RGLRU(blocks=3))


def test_gates_begin_by_the_size_of_a_block(initial):
    """Each block has a matrix of its own, of deviation 1/√(features of the block)."""
    params = initial(T.RGLRU(hidden_dim=128, blocks=2))
    for name in ("input", "forget"):
        np.testing.assert_allclose(params[name].std(), 64**-0.5, rtol=0.05)
