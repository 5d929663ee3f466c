"""What recurrences that are linear in a state of keys and values share: heads, a short convolution, norm and gate."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from transformer.core.arrays import dense
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ONES, Initializer, OwnParams, Parameter
from transformer.functional.linear_recurrences import Update, linear_recurrence, linear_step
from transformer.functional.recurrences import begins
from transformer.mixers.recurrent.initial_values import Taps
from transformer.mixers.recurrent.recurrence import WINDOW, Recurrence
from transformer.norms.norm import rms_norm

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig

STATE = "memory"
"""The array of the state that the recurrence is of."""
ROLES = ("query", "key", "value")
"""What is projected, in the order in which it is convolved."""


@dataclass(frozen=True)
class LinearRecurrence(Recurrence):
    """A recurrence of `transformer.functional.linear_recurrences` in heads. A new one defines `inputs` and `output`.

    `inputs` are (its `Update`, anything else that `output` reads).
    """

    num_heads: int = 4
    """H: heads, each with a state of its own."""
    key_dim: int | None = None
    """K: size of the queries and keys of a head; None: d_model / H."""
    value_dim: int | None = None
    """V: size of the values of a head; None: d_model / H."""
    eps: float = 1e-5
    """Added to the mean square of an output, before its root."""
    chunk: int = 64
    """Tokens that are computed at once."""

    def __post_init__(self):
        sizes = ("num_heads", "key_dim", "value_dim", "chunk")
        check_positive(self, "eps", *(name for name in sizes if getattr(self, name) is not None))

    def check(self, model):
        if None in (self.key_dim, self.value_dim) and model.d_model % self.num_heads:
            raise ConfigError(
                f"{self.name}.num_heads: d_model {model.d_model} is no multiple of {self.num_heads} heads; set key_dim "
                "and value_dim"
            )

    def sizes(self, model: "ModelConfig") -> tuple[int, int]:
        """(K, V)."""
        usual = model.d_model // self.num_heads
        return self.key_dim or usual, self.value_dim or usual

    def state(self, model) -> dict[str, tuple[int, ...]]:
        return {STATE: (self.num_heads, *self.sizes(model))}

    def step(self, state, inputs):
        after, y_BHV = linear_step(state[STATE], inputs[0])
        return {STATE: after}, y_BHV

    def parallel(self, state, inputs, tokens):
        begin = begins(tokens)
        documents = None if begin is None else jnp.cumsum(begin, 1)
        y_BLHV, after = linear_recurrence(
            inputs[0], state[STATE], documents_BL=documents, valid_BL=tokens.valid, chunk=self.chunk
        )
        return y_BLHV, {STATE: after}


@dataclass(frozen=True)
class ProjectedRecurrence(LinearRecurrence):
    """One whose queries, keys and values are projections. A new one defines `gates` and `update`.

    A short causal convolution and SiLU may follow the projections; the output of every head is normalized, gated and
    projected. `inputs` are (its `Update`, the values (B, L, H, V)).
    """

    num_key_heads: int | None = None
    """Heads of queries and keys, each shared by a group of the H; None: H."""
    convolution: int | None = 4
    """Tokens spanned by the convolution; None: neither convolution nor SiLU."""

    output_gate: ClassVar[Callable[[jax.Array], jax.Array] | None] = None
    """The activation of the gate of the output; None: no gate."""

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, *(n for n in ("num_key_heads", "convolution") if getattr(self, n) is not None))

    def check(self, model):
        super().check(model)
        if self.num_heads % self.key_heads:
            raise ConfigError(
                f"{self.name}.num_key_heads: {self.num_heads} heads are no multiple of {self.num_key_heads}"
            )

    @property
    def key_heads(self) -> int:
        return self.num_heads if self.num_key_heads is None else self.num_key_heads

    def gates(self, model: "ModelConfig") -> dict[str, Parameter]:
        """The parameters of decays and rates, by name."""
        return {}

    @abc.abstractmethod
    def update(
        self, q_BLHK: jax.Array, k_BLHK: jax.Array, v_BLHV: jax.Array, x_BLD: jax.Array, params: OwnParams
    ) -> Update:
        """What tokens do to the state, from their queries, keys and values, all float32, and the input."""

    def widths(self, model: "ModelConfig") -> dict[str, int]:
        """The widths of what is projected from the input, and convolved."""
        K, V = self.sizes(model)
        return {"query": self.key_heads * K, "key": self.key_heads * K, "value": self.num_heads * V}

    def parameters(self, model):
        D, initializer, widths = model.d_model, model.initializer, self.widths(model)
        gains = {"value": model.inner_gain(model.residual)}
        specs = {name: Parameter((D, width), initializer, gain=gains.get(name, 1.0)) for name, width in widths.items()}
        if self.convolution is not None:
            taps = {
                f"{n}_taps": Parameter((self.convolution, width), Taps(), decay=False) for n, width in widths.items()
            }
            specs |= taps
        gate = {} if self.output_gate is None else self.gate_parameters(model)
        wide = self.num_heads * self.sizes(model)[1]
        out = Parameter((wide, D), initializer, gain=model.output_gain(model.residual))
        return specs | self.gates(model) | gate | self.norm_parameters(model) | {"out": out}

    def state(self, model):
        if self.convolution is None:
            return super().state(model)
        return super().state(model) | {WINDOW: (self.convolution - 1, sum(self.widths(model).values()))}

    def kernel(self, params):
        return None if self.convolution is None else jnp.concatenate([params[f"{name}_taps"] for name in ROLES], 1)

    def project(self, x_BLD, params):
        return jnp.concatenate([dense(x_BLD, params[name], jnp.float32) for name in ROLES], -1)

    def inputs(self, x_BLD, mixed_BLX, params):
        q, k, v = self.features(x_BLD, mixed_BLX, params)
        q, k = (self.shared(split_heads(x, self.key_heads)) for x in (q, k))
        v = split_heads(v, self.num_heads)
        return self.update(q, k, v, x_BLD, params), v

    def features(self, x_BLD: jax.Array, mixed_BLX: jax.Array | None, params: OwnParams) -> list[jax.Array]:
        """The features of queries, keys and values, float32."""
        features = self.project(x_BLD, params) if mixed_BLX is None else jax.nn.silu(mixed_BLX.astype(jnp.float32))
        ends = np.cumsum([params[name].shape[1] for name in ROLES[:2]])
        return jnp.split(features.astype(jnp.float32), ends, -1)

    def shared(self, x_BLHK: jax.Array) -> jax.Array:
        """Queries or keys of every head."""
        return jnp.repeat(x_BLHK, self.num_heads // self.key_heads, 2)

    def output(self, y_BLX, inputs, x_BLD, params):
        y_BLX = rearrange(self.normalized(y_BLX, params), "b l h v -> b l (h v)")
        if (activation := type(self).output_gate) is not None:
            y_BLX = y_BLX * activation(self.gate(x_BLD, params))
        return dense(y_BLX.astype(x_BLD.dtype), params["out"])

    def norm_parameters(self, model: "ModelConfig") -> dict[str, Parameter]:
        """The parameters of `normalized`."""
        return {"norm": Parameter((self.sizes(model)[1],), ONES)}

    def normalized(self, y_BLHV: jax.Array, params: OwnParams) -> jax.Array:
        """The outputs of heads from those of the recurrence."""
        return rms_norm(y_BLHV, scale_D=params["norm"], eps=self.eps)

    def gate_parameters(self, model: "ModelConfig") -> dict[str, Parameter]:
        """The parameters of the output's gate."""
        return {"gate": Parameter((model.d_model, self.num_heads * self.sizes(model)[1]), model.initializer)}

    def gate(self, x_BLD: jax.Array, params: OwnParams) -> jax.Array:
        """What the activation of the output's gate is applied to, (B, L, H · V) float32."""
        return dense(x_BLD, params["gate"], jnp.float32)


def split_heads(x_BLX: jax.Array, num_heads: int) -> jax.Array:
    return rearrange(x_BLX, "b l (h k) -> b l h k", h=num_heads)


def unit(x_BLHK: jax.Array) -> jax.Array:
    """Vectors of length 1."""
    return x_BLHK * jax.lax.rsqrt((x_BLHK * x_BLHK).sum(-1, keepdims=True) + 1e-6)


def low_rank(x_BLD: jax.Array, params: OwnParams, name: str, between=lambda x: x) -> jax.Array:
    """x · `name`_in, `between`, and · `name`_out, float32."""
    inner = between(dense(x_BLD, params[f"{name}_in"], jnp.float32))
    return dense(inner.astype(x_BLD.dtype), params[f"{name}_out"], jnp.float32)


def low_rank_parameters(name: str, shape: tuple[int, int, int], initializer: Initializer) -> dict[str, Parameter]:
    d_in, rank, d_out = shape
    return {f"{name}_in": Parameter((d_in, rank), initializer), f"{name}_out": Parameter((rank, d_out), initializer)}
