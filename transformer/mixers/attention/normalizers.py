"""How the scores of a query become weights, where that is not a softmax."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from transformer.core.checks import check_not_negative, check_positive
from transformer.core.parameters import ZEROS, Identity, Parameter
from transformer.functional import normalizers as weights
from transformer.mixers.attention.base import Normalizer


@dataclass(frozen=True)
class SoftmaxOne(Normalizer):
    """exp(s) / (1 + Σ exp(s)): a head may attend to nothing (Miller 2023)."""

    name = "softmax_one"
    online = True

    def __call__(self, num_heads, params):
        return weights.Softmax(jnp.zeros(num_heads, jnp.float32))


@dataclass(frozen=True)
class Sink(Normalizer):
    """exp(s) / (exp(z) + Σ exp(s)) with one trained z per head (gpt-oss model card, OpenAI 2025)."""

    online = True
    begins_as = "softmax_one"

    def parameters(self, num_heads):
        return {"sink": Parameter((num_heads,), ZEROS)}

    def __call__(self, num_heads, params):
        return weights.Softmax(params["sink"])


@dataclass(frozen=True)
class SigmoidNormalizer(Normalizer):
    """σ(s - log n) for n keys, each weight on its own (Ramapuram et al. 2024, equation 3)."""

    name = "sigmoid"

    def __call__(self, num_heads, params):
        return weights.SigmoidWeigh()


@dataclass(frozen=True)
class ReLUNormalizer(Normalizer):
    """max(0, s) / n for n keys (Wortsman et al. 2023b, equation 2)."""

    name = "relu"

    def __call__(self, num_heads, params):
        return weights.ReLUWeigh()


@dataclass(frozen=True)
class TalkingHeads(Normalizer):
    """Heads mixed by trained matrices before and after softmax (Shazeer et al. 2020).

    Both are the identity initially, and random in the authors' code.
    """

    name = "talking_heads"
    begins_as = "none"

    def parameters(self, num_heads):
        square = Parameter((num_heads, num_heads), Identity(), decay=False)
        return {"before": square, "after": square}

    def __call__(self, num_heads, params):
        return weights.TalkingHeads(params["before"], params["after"])


@dataclass(frozen=True)
class LinearNormalizer(Normalizer):
    """φ(q)·φ(k) / Σ φ(q)·φ(k) with φ(x) = elu(x) + 1 (Katharopoulos et al. 2020)."""

    name = "linear"
    linear = True
    biased = False
    scaled = False

    def features(self, x_BLHK):
        return weights.elu_features(x_BLHK)

    def __call__(self, num_heads, params):
        return weights.Normalized()


@dataclass(frozen=True)
class Performer(Normalizer):
    """`linear` with positive random features, which approximate softmax (FAVOR+, Choromanski et al. 2020).

    The directions are drawn once; the authors' code draws them again in training, 256 by default.
    """

    num_features: int = 64
    """Number of features, each from one direction."""
    seed: int = 0
    """Seed of the directions, which are orthogonal, not trained, and the same in all layers and heads."""
    linear = True
    biased = False
    scaled = False

    def __post_init__(self):
        check_positive(self, "num_features")
        check_not_negative(self, "seed")

    def directions(self, head_dim: int) -> np.ndarray:
        """(F, K) directions: rows of rotations that are all equally probable, of the lengths of normal vectors."""
        rng, blocks = np.random.default_rng(self.seed), -(-self.num_features // head_dim)
        normal = [rng.normal(size=(head_dim, head_dim)) for _ in range(blocks)]
        sizes = [np.linalg.norm(rng.normal(size=(head_dim, head_dim)), axis=1, keepdims=True) for _ in range(blocks)]
        return np.concatenate([_rotation(n) * size for n, size in zip(normal, sizes, strict=True)])[: self.num_features]

    def features(self, x_BLHK):
        head_dim = x_BLHK.shape[-1]
        directions_FK = jnp.asarray(self.directions(head_dim), jnp.float32)
        # Both q and k are divided by the fourth root of K, so that their product approximates exp(q·k/√K).
        return weights.random_features(x_BLHK * jnp.asarray(head_dim**-0.25, x_BLHK.dtype), directions_FK)

    def __call__(self, num_heads, params):
        return weights.Normalized()


def _rotation(normal: np.ndarray) -> np.ndarray:
    """An orthogonal matrix of a normal one, uniform by the signs of R (Mezzadri 2007, section 5)."""
    q, r = np.linalg.qr(normal)
    return q * np.sign(np.diag(r))


@dataclass(frozen=True)
class Retention(Normalizer):
    """q·k γ^(i-j) without normalization, γ = 1 - 2^(-5-h) (RetNet, Sun Y. et al. 2023, equations 5 and 8).

    The paper also normalizes each head's output: set `mixer.inner_norm` to `groupnorm`.
    """

    linear = True
    biased = False
    ordered = True

    def __call__(self, num_heads, params):
        return weights.Decay(1 - 2.0 ** (-5 - jnp.arange(num_heads, dtype=jnp.float32)))
