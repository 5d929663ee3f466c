"""Functions of the scores."""

import math
from dataclasses import dataclass

import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import Constant, Parameter
from transformer.functional.attention import SoftCapped
from transformer.mixers.attention.base import ScoreMod


@dataclass(frozen=True)
class SoftCap(ScoreMod):
    """c · tanh(s / c) (Gemma 2, 2024)."""

    name = "soft_cap"
    cap: float = 50.0
    """c: bound of the absolute score, positive."""

    def __post_init__(self):
        check_positive(self, "cap")

    def function(self, params):
        return SoftCapped(self.cap)

    def __call__(self, scores, queries, keys, params):
        return SoftCapped(self.cap)(scores, queries, keys)


@dataclass(frozen=True)
class LogLength(ScoreMod):
    """s · log n / log `trained` for a query that is the n-th token, from n = `trained` on (Qwen, Bai et al. 2023).

    So attention stays as sharp in longer texts as at the lengths it was trained for (Chiang and Cholak
    2022). Of self-attention alone.
    """

    name = "log_length"
    trained: int = 512
    """Length of training, in tokens, at least 2."""
    positional = True
    relative = False

    def __post_init__(self):
        if self.trained < 2:
            raise ConfigError(f"log_length.trained: {self.trained} is less than 2")

    def __call__(self, scores, queries, keys, params):
        assert queries is not None
        n_BL = jnp.maximum(queries.positions + 1, self.trained).astype(jnp.float32)
        return scores * (jnp.log(n_BL) / math.log(self.trained))[:, None, :, None]


@dataclass(frozen=True)
class SSMax(ScoreMod):
    """s · a log n for a query that is the n-th token, with one trained a per head (Nakanishi 2025, scalable softmax).

    The weights are n^(a s) / Σ n^(a s), which do not fade as texts become longer. Of self-attention alone.
    """

    name = "ssmax"
    initial: float = 0.168
    """Initial value of a: 1 / (the mean of log n) at 1,024 tokens, so that scores keep their size at first."""
    positional = True
    relative = False

    def __post_init__(self):
        check_positive(self, "initial")

    def parameters(self, num_heads):
        return {"factors": Parameter((num_heads,), Constant(self.initial))}

    def __call__(self, scores, queries, keys, params):
        assert queries is not None
        log_BL = jnp.log((queries.positions + 1).astype(jnp.float32))
        return scores * params["factors"][:, None, None] * log_BL[:, None, :, None]
