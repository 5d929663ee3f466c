"""Elementwise recurrences; HGRN's own equation is tested in `test_recurrence.py`."""

import jax
import jax.numpy as jnp
import numpy as np

import transformer as T


def test_min_gru_is_algorithm_six(follows, plain):
    """h ← (1 - z) ⊙ h + z ⊙ g(x W_h) with the g of appendix B."""

    def equations(x, p):
        hidden, out = np.zeros(8), []
        for row in x:
            z, raw = plain.sigmoid(row @ p["update"]), row @ p["candidate"]
            hidden = (1 - z) * hidden + z * np.where(raw >= 0, raw + 0.5, plain.sigmoid(raw))
            out.append(hidden @ p["out"])
        return np.array(out)

    follows(T.MinGRU(), equations)


def test_the_bound_is_the_least_that_is_kept(follows, plain):
    def equations(x, p):
        hidden, out = np.zeros(8), []
        for row in x:
            kept = 0.75 + 0.25 * plain.sigmoid(row @ p["forget"])
            hidden = kept * hidden + (1 - kept) * plain.silu(row @ p["candidate"])
            out.append((plain.sigmoid(row @ p["gate"]) * hidden) @ p["out"])
        return np.array(out)

    follows(T.HGRN(lower_bound=0.75), equations)


def test_what_is_hardly_forgotten_is_still_written():
    """Where σ rounds to 1, what is written, as it is the rest."""
    params = {"forget": jnp.full((1, 1), 20.0), "candidate": jnp.ones((1, 1))}
    _, written = T.HGRN().inputs(jnp.ones((1, 1, 1)), None, params)
    np.testing.assert_allclose(written, jax.nn.sigmoid(-20.0) * jax.nn.silu(1.0), rtol=1e-6)


def test_memory(remembers):
    remembers(T.HGRN(), 8)
    remembers(T.MinGRU(), 8)
