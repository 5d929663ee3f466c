"""Functions of the scores, and how scores become weights."""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.parameters import ZEROS, Identity, Parameter
from transformer.core.values import ConfigError, Variant, check_positive
from transformer.functional import normalizers as weights
from transformer.functional.masks import Tokens
from transformer.functional.normalizers import Weigh

Params = dict[str, jax.Array]


class Score(Variant, abc.ABC):
    """A function of scores scale · q·k, before the bias of the position is added (`score_mod`, Dong J. et al. 2024)."""

    plain: ClassVar[bool] = False
    """Whether it leaves scores as they are."""
    positional: ClassVar[bool] = False
    """Whether it reads the tokens, and so is for self-attention alone."""
    relative: ClassVar[bool] = True
    """Whether it depends on no positions but by their distances."""

    @abc.abstractmethod
    def __call__(self, scores: jax.Array, queries: Tokens | None = None, keys: Tokens | None = None) -> jax.Array:
        """The scores used, in the shape (B, H, L, S) of those given, for the positions and segments of both sides.

        All scores of a query need not be here: attention may ask for one block of them. A function of a score alone
        (not `positional`) may also be asked for logits, of any shape and without tokens.
        """


@dataclass(frozen=True)
class PlainScore(Score):
    """Leaves the score as it is."""

    name = "plain"
    plain = True

    def __call__(self, scores, queries=None, keys=None):
        return scores


@dataclass(frozen=True)
class SoftCap(Score):
    """c · tanh(s / c) (Gemma 2, 2024)."""

    name = "soft_cap"
    cap: float = 50.0
    """c: bound of the absolute score, positive."""

    def __post_init__(self):
        check_positive(self, "cap")

    def __call__(self, scores, queries=None, keys=None):
        return self.cap * jnp.tanh(scores / self.cap)


@dataclass(frozen=True)
class LogLength(Score):
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

    def __call__(self, scores, queries=None, keys=None):
        assert queries is not None
        n_BL = jnp.maximum(queries.positions + 1, self.trained).astype(jnp.float32)
        return scores * (jnp.log(n_BL) / math.log(self.trained))[:, None, :, None]


class Weighting(Variant, abc.ABC):
    """How the scores of a query become weights of the values."""

    online: ClassVar[bool] = False
    """Whether it is a softmax, which can be computed block by block."""
    linear: ClassVar[bool] = False
    """Whether weights are products of features of queries and keys, which can be summed token by token."""
    biased: ClassVar[bool] = True
    """Whether a bias of the position may be added to the scores."""
    relative: ClassVar[bool] = False
    """Whether it depends on the distance of query and key."""
    scaled: ClassVar[bool] = True
    """Whether a factor on the scores changes the weights."""

    def parameters(self, num_heads: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def features(self, x_BLHK: jax.Array) -> jax.Array:
        """The features of queries or keys whose product is a score."""
        return x_BLHK

    @abc.abstractmethod
    def __call__(self, num_heads: int, params: Params) -> Weigh: ...


@dataclass(frozen=True)
class SoftmaxWeighting(Weighting):
    """exp(s) / Σ exp(s) (Vaswani et al. 2017)."""

    name = "softmax"
    online = True

    def __call__(self, num_heads, params):
        return weights.Softmax()


@dataclass(frozen=True)
class SoftmaxOne(Weighting):
    """exp(s) / (1 + Σ exp(s)): a head may attend to nothing (Miller 2023)."""

    name = "softmax_one"
    online = True

    def __call__(self, num_heads, params):
        return weights.Softmax(jnp.zeros(num_heads))


@dataclass(frozen=True)
class Sink(Weighting):
    """exp(s) / (exp(z) + Σ exp(s)) with one trained z per head (gpt-oss model card, OpenAI 2025)."""

    online = True
    begins_as = "softmax_one"

    def parameters(self, num_heads):
        return {"sink": Parameter((num_heads,), ZEROS)}

    def __call__(self, num_heads, params):
        return weights.Softmax(params["sink"])


@dataclass(frozen=True)
class SigmoidWeighting(Weighting):
    """σ(s - log n) for n keys, each weight on its own (Ramapuram et al. 2024, equation 3)."""

    name = "sigmoid"

    def __call__(self, num_heads, params):
        return weights.SigmoidWeigh()


@dataclass(frozen=True)
class ReLUWeighting(Weighting):
    """max(0, s) / n for n keys (Wortsman et al. 2023b, equation 2)."""

    name = "relu"

    def __call__(self, num_heads, params):
        return weights.ReLUWeigh()


@dataclass(frozen=True)
class TalkingHeads(Weighting):
    """Heads mixed by trained matrices before and after softmax, initially the identity (Shazeer et al. 2020)."""

    name = "talking_heads"
    begins_as = "softmax"

    def parameters(self, num_heads):
        square = Parameter((num_heads, num_heads), Identity(), decay=False)
        return {"before": square, "after": square}

    def __call__(self, num_heads, params):
        return weights.TalkingHeads(params["before"], params["after"])


@dataclass(frozen=True)
class LinearWeighting(Weighting):
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
class Performer(Weighting):
    """`linear` with positive random features, which approximate softmax (FAVOR+, Choromanski et al. 2020)."""

    num_features: int = 64
    """Number of features, each from one direction."""
    seed: int = 0
    """Seed of the directions, which are orthogonal, not trained, and the same in all layers and heads."""
    linear = True
    biased = False
    scaled = False

    def __post_init__(self):
        check_positive(self, "num_features")

    def features(self, x_BLHK):
        head_dim = x_BLHK.shape[-1]
        rng, blocks = np.random.default_rng(self.seed), -(-self.num_features // head_dim)
        normal = [rng.normal(size=(head_dim, head_dim)) for _ in range(blocks)]
        sizes = [np.linalg.norm(rng.normal(size=(head_dim, head_dim)), axis=1, keepdims=True) for _ in range(blocks)]
        directions = np.concatenate([np.linalg.qr(n)[0] * size for n, size in zip(normal, sizes, strict=True)])
        directions_FK = jnp.asarray(directions[: self.num_features], jnp.float32)
        # Both q and k are divided by the fourth root of K, so that their product approximates exp(q·k/√K).
        return weights.random_features(x_BLHK * jnp.asarray(head_dim**-0.25, x_BLHK.dtype), directions_FK)

    def __call__(self, num_heads, params):
        return weights.Normalized()


@dataclass(frozen=True)
class Retention(Weighting):
    """q·k γ^(i-j) without normalization, γ = 1 - 2^(-5-h) (RetNet, Sun Y. et al. 2023, equations 5 and 8).

    The paper also normalizes each head's output: set `model.attention_inner_norm` to `groupnorm`.
    """

    linear = True
    biased = False
    relative = True

    def __call__(self, num_heads, params):
        return weights.Decay(1 - 2.0 ** (-5 - jnp.arange(num_heads, dtype=jnp.float32)))
