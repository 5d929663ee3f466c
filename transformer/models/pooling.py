"""What a classifier reads off the tokens of a sequence: one vector, or one for each token."""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from einops import rearrange

from transformer.core.arrays import dense, plus
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError, nearest_divisor
from transformer.core.parameters import ONES, ZEROS, Normal, OwnParams, Parameter, Xavier
from transformer.core.values import Variant
from transformer.functional.attention import masked_softmax
from transformer.norms.norm import layer_norm


class Pooling(Variant):
    """Maps (B, L, D) to (B, D), or to (B, L, D) where each token has a class."""

    per_token: ClassVar[bool] = False
    """Whether each token is read separately."""
    extra_token: ClassVar[bool] = False
    """Whether a trained vector, its parameter `token`, is put before the sequence."""
    reads_first: ClassVar[bool] = False
    """Whether only the output at the first token is read."""

    def check(self, d_model: int) -> None:
        """Raise `ConfigError` where it does not fit the width of the model."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, x_BLD: jax.Array, valid_BL: jax.Array | None, params: OwnParams) -> jax.Array:
        """Pools the tokens; padding, where `valid_BL` is False, is ignored."""


@dataclass(frozen=True)
class MeanPooling(Pooling):
    """The mean of the real tokens."""

    name = "mean"

    def __call__(self, x_BLD, valid_BL, params):
        weights = jnp.ones(x_BLD.shape[:2]) if valid_BL is None else valid_BL.astype(jnp.float32)
        weights = weights / jnp.maximum(weights.sum(1, keepdims=True), 1.0)
        return (x_BLD.astype(jnp.float32) * weights[..., None]).sum(1).astype(x_BLD.dtype)


@dataclass(frozen=True)
class ClassToken(Pooling):
    """The output at a trained token before the sequence (BERT, Devlin et al. 2018; ViT)."""

    name = "cls"
    extra_token = True
    reads_first = True

    def parameters(self, d_model):
        return {"token": Parameter((d_model,), Normal(0.02))}

    def __call__(self, x_BLD, valid_BL, params):
        return x_BLD[:, 0]


@dataclass(frozen=True)
class FirstToken(Pooling):
    """tanh(xW + b) of the output at the first token of the text (the pooler of BERT, Devlin et al. 2018)."""

    name = "first"
    reads_first = True

    def parameters(self, d_model):
        return {"kernel": Parameter((d_model, d_model), Normal(0.02)), "bias": Parameter((d_model,), ZEROS)}

    def __call__(self, x_BLD, valid_BL, params):
        x_BD = dense(x_BLD[:, 0], params["kernel"])
        return jnp.tanh(plus(x_BD, params["bias"]))


@dataclass(frozen=True)
class AttentionPooling(Pooling):
    """The mean of the real tokens weighted by softmax(x·w) (sequence pooling, Hassani et al. 2021, equation 3)."""

    name = "attention"

    def parameters(self, d_model):
        return {"query": Parameter((d_model,), Normal(0.02))}

    def __call__(self, x_BLD, valid_BL, params):
        scores_BL = (x_BLD.astype(jnp.float32) * params["query"]).sum(-1)
        weights = masked_softmax(scores_BL, valid_BL)
        return (x_BLD.astype(jnp.float32) * weights[..., None]).sum(1).astype(x_BLD.dtype)


@dataclass(frozen=True)
class MultiheadPooling(Pooling):
    """y + MLP(norm(y)), y the attention of one trained query to the real tokens.

    MAP of Zhai et al. 2022, section 2.1 (after Lee et al. 2019, equations 7 and 10), without biases.
    """

    name = "map"
    num_heads: int = 4
    """Heads, a divisor of d_model."""
    expansion: int = 4
    """Width of the MLP over d_model."""

    def __post_init__(self):
        check_positive(self, "num_heads", "expansion")

    def check(self, d_model):
        if d_model % self.num_heads:
            raise ConfigError(
                f"map.num_heads: {self.num_heads} heads do not divide d_model {d_model}; the nearest that do are "
                f"{nearest_divisor(d_model, self.num_heads)}"
            )

    def parameters(self, d_model):
        square, hidden = Parameter((d_model, d_model), Xavier()), self.expansion * d_model
        return {
            "query": Parameter((d_model,), Normal(0.02)),
            **dict.fromkeys(("key", "value", "out"), square),
            "scale": Parameter((d_model,), ONES),
            "up": Parameter((d_model, hidden), Xavier()),
            "down": Parameter((hidden, d_model), Xavier()),
        }

    def __call__(self, x_BLD, valid_BL, params):
        heads = {"h": self.num_heads}
        query_HK = rearrange(params["query"], "(h k) -> h k", **heads)
        projected = (dense(x_BLD, params[name]) for name in ("key", "value"))
        k_BLHK, v_BLHK = (rearrange(x.astype(jnp.float32), "b l (h k) -> b l h k", **heads) for x in projected)
        scores_BHL = jnp.einsum("hk,blhk->bhl", query_HK, k_BLHK) / math.sqrt(query_HK.shape[-1])
        weights_BHL = masked_softmax(scores_BHL, None if valid_BL is None else valid_BL[:, None])
        read_BHK = jnp.einsum("bhl,blhk->bhk", weights_BHL, v_BLHK).astype(x_BLD.dtype)
        y_BD = dense(rearrange(read_BHK, "b h k -> b (h k)"), params["out"])
        hidden_BF = jax.nn.gelu(dense(layer_norm(y_BD, scale_D=params["scale"]), params["up"]))
        return y_BD + dense(hidden_BF, params["down"])


@dataclass(frozen=True)
class PerToken(Pooling):
    """No pooling: each token has its own class (sequence labelling, as in BERT, Devlin et al. 2018, section 5.3)."""

    name = "per_token"
    per_token = True

    def __call__(self, x_BLD, valid_BL, params):
        return x_BLD
