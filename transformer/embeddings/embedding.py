"""From tokens to vectors and from states to logits, by the same kind of table."""

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import nnx

from transformer.core.arrays import check_ids, check_tokens, dense, look_up, plus
from transformer.core.errors import ConfigError
from transformer.core.modules import Parameters, at, make_parameter
from transformer.core.parameters import ONES, ZEROS, Initializer, Normal, OwnParams, Parameter
from transformer.core.values import Variant
from transformer.mixers.attention.base import ScoreMod

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Embedding(Variant):
    """How tokens become vectors: rows of a table."""

    dim: int | None = None
    """E: width of the table, which a matrix then projects to d_model (Lan et al. 2020); None: d_model."""
    scaled: bool = False
    """Whether rows are multiplied by √d_model (Vaswani et al. 2017, section 3.4)."""
    unit_length: bool = False
    """Whether all rows have one trained length (FixNorm, Nguyen and Chiang 2018)."""
    types: int | None = None
    """Kinds of tokens, each with a vector of its own (the segments of BERT); None: no such vectors."""
    initializer: Initializer = Normal(0.02)
    """Initial values of the table."""

    def check(self) -> None:
        """Raise `ConfigError` where a size is not a positive number."""
        for name in ("dim", "types"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"embedding.{name}: {value} is not a positive number")


class HeadTransform(Variant):
    """A function of the states before the output projection, (B, L, D) to (B, L, D)."""

    def check(self, d_model: int) -> None:
        """Raise `ConfigError` where it does not fit `d_model` features."""

    def parameters(self, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns, by name."""
        return {}

    @abc.abstractmethod
    def __call__(self, x_BLD: jax.Array, params: OwnParams) -> jax.Array: ...


@dataclass(frozen=True, kw_only=True)
class Head(Variant):
    """The output layer: score_mod(scale · transform(x) · tableᵀ + bias)."""

    tied: bool = True
    """Whether the table is that of the token embedding (Press and Wolf 2017)."""
    transform: HeadTransform | None = None
    """Function applied to the states first; None: none."""
    scale: float = 1.0
    """Factor on the states that the output projection reads, and so on the logits."""
    bias: bool = False
    """Whether a trained number is added to the logit of each token."""
    score_mod: ScoreMod | None = None
    """Function applied to every logit, such as a soft cap (Gemma 2, 2024); None: none."""

    def check(self, d_model: int) -> None:
        """Raise `ConfigError` where the transform does not fit `d_model` features, or the function is not of logits."""
        if self.transform is not None:
            self.transform.check(d_model)
        if self.score_mod is not None and self.score_mod.positional:
            raise ConfigError(f"head.score_mod: {self.score_mod} reads positions, and logits have none; use soft_cap")
        if self.score_mod is not None and self.score_mod.parameters(1):
            raise ConfigError(f"head.score_mod: {self.score_mod} has parameters of heads, and logits have none")


class EmbeddingLayer(nnx.Module):
    """A (V, D) table looked up by token; with `dim` the product of a (V, E) and an (E, D) matrix."""

    def __init__(
        self,
        vocab_size: int | None,
        model: "ModelConfig",
        *,
        with_types: bool = False,
        gain: float = 1.0,
        key: jax.Array,
    ):
        if vocab_size is None:
            raise ConfigError("model.vocab_size is not set: there is no tokenizer here to take it from")
        own = model.embedding
        self.dtype, D, E = jnp.dtype(model.dtype), model.d_model, own.dim
        self.scale = D**0.5 if own.scaled else 1.0
        spec = Parameter((vocab_size, E or D), own.initializer, gain=gain)
        self.table = make_parameter(spec, at(key, "table"))
        widen = None if E is None else Parameter((E, D), model.initializer)
        self.projection = None if widen is None else make_parameter(widen, at(key, "projection"))
        kinds = Parameter((own.types, D), own.initializer) if with_types and own.types is not None else None
        self.types = None if kinds is None else make_parameter(kinds, at(key, "types"))
        self.gain = make_parameter(Parameter((), ONES), at(key, "gain")) if own.unit_length else None

    def _unit_rows(self) -> jax.Array:
        """The table with rows of one length."""
        assert self.gain is not None
        table = self.table[...]
        return self.gain[...] * table * jax.lax.rsqrt(jnp.square(table).sum(-1, keepdims=True) + 1e-12)

    def __call__(self, tokens_BL: jax.Array, types_BL: jax.Array | None = None) -> jax.Array:
        """Embedded tokens (B, L, D).

        In a compiled program a token outside the vocabulary gives NaN; batches are checked before the step.

        Args:
          tokens_BL: integers in [0, V).
          types_BL: integers in [0, types); None: all are of type 0.

        Raises:
          ConfigError: tokens are no array (B, L); types are given, and the model has none; or, called eagerly, there is
            no such token or type.
        """
        check_tokens(tokens_BL, self.vocab_size)
        table_VD = self.table[...] if self.gain is None else self._unit_rows()
        rows = (look_up(table_VD, tokens_BL) * self.scale).astype(self.dtype)
        rows = rows if self.projection is None else dense(rows, self.projection[...])
        if self.types is None:
            if types_BL is not None:
                raise ConfigError("embedding.types is not set, and types of tokens are given")
            return rows
        if types_BL is None:
            return plus(rows, self.types[0])
        check_ids(types_BL, self.types.shape[0], "type")
        return rows + look_up(self.types[...], types_BL).astype(self.dtype)

    @property
    def vocab_size(self) -> int:
        """V: the rows of the table."""
        return self.table.shape[0]

    def logits(self, x_BLD: jax.Array) -> jax.Array:
        """x · tableᵀ, (B, L, V) float32."""
        x = x_BLD if self.projection is None else dense(x_BLD, self.projection[...].T, transposed=True)
        table_VD = self.table[...] if self.gain is None else self._unit_rows()
        return dense(x, table_VD.T, jnp.float32, transposed=True)


class HeadLayer(nnx.Module):
    """The output layer with its parameters, without the table."""

    def __init__(self, model: "ModelConfig", *, key: jax.Array):
        self.head = model.head
        own = {} if self.head.transform is None else self.head.transform.parameters(model.d_model)
        self.transform = Parameters(own, key=at(key, "transform"))
        specs = {"bias": Parameter((model.vocab_size or 0,), ZEROS)} if self.head.bias else {}
        self.output = Parameters(specs, key=at(key, "output"))

    def __call__(self, x_BLD: jax.Array, table: EmbeddingLayer) -> jax.Array:
        """Logits (B, L, V), float32, with the table of an embedding."""
        if self.head.transform is not None:
            x_BLD = self.head.transform(x_BLD, self.transform())
        logits_BLV = table.logits(x_BLD * self.head.scale)
        if self.head.bias:
            logits_BLV = logits_BLV + self.output()["bias"]
        return logits_BLV if self.head.score_mod is None else self.head.score_mod(logits_BLV, None, None, {})


class ValueEmbedding(nnx.Module):
    """A table of values by token, (V, kv heads · value size)."""

    def __init__(self, num_kv_heads: int, value_size: int, model: "ModelConfig", *, key: jax.Array):
        self.size, self.dtype = value_size, jnp.dtype(model.dtype)
        assert model.vocab_size is not None
        spec = Parameter((model.vocab_size, num_kv_heads * value_size), model.embedding.initializer)
        self.table = make_parameter(spec, at(key, "table"))

    def __call__(self, tokens_BL: jax.Array) -> jax.Array:
        """(B, L, kv heads, value size)."""
        rows = look_up(self.table[...], tokens_BL).astype(self.dtype)
        return rearrange(rows, "b l (g v) -> b l g v", v=self.size)
