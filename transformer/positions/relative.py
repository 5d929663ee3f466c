"""Positional schemes that add a function of the distance of two tokens to their score."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import plus
from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.parameters import ONES, ZEROS, Constant, FanIn, Initializer, Normal, Parameter
from transformer.functional import biases, positions
from transformer.positions.position import Position


@dataclass(frozen=True)
class ALiBi(Position):
    """A bias that decreases linearly with distance (Press et al. 2021)."""

    relative = True
    fades = True

    def bias(self, q_BLHK, causal, params):
        return biases.LinearDistance(jnp.asarray(biases.alibi_slopes(q_BLHK.shape[2]), jnp.float32))


@dataclass(frozen=True)
class T5Bias(Position):
    """A trained bias for each bucket of distances and each head (Raffel et al. 2019)."""

    name = "t5_bias"
    num_buckets: int = 32
    """Number of buckets, at least 4; in an encoder half are for keys after the query."""
    max_distance: int = 128
    """Distances from this one on, in tokens, are in the last bucket."""
    shared: bool = True
    """Whether all layers share one table; otherwise each has its own."""
    relative = True

    def __post_init__(self):
        if self.num_buckets < 4 or self.max_distance <= self.num_buckets // 2:
            raise ConfigError(f"t5_bias: {self.num_buckets} buckets do not reach {self.max_distance} tokens")

    def _table(self, num_heads):
        return {"table": Parameter((self.num_buckets, num_heads), Normal(0.02), decay=False)}

    def parameters(self, d_model, num_heads, max_length):
        return self._table(num_heads) if self.shared else {}

    def layer_parameters(self, num_heads, head_dim, d_model, value_dim):
        return {} if self.shared else self._table(num_heads)

    def bias(self, q_BLHK, causal, params):
        return biases.Bucketed(params["table"], self.max_distance, causal)


@dataclass(frozen=True)
class SoftplusUniform(Initializer):
    """Numbers whose softplus is drawn uniformly from 0.01 to `most`."""

    name = "softplus_uniform"
    most: float = 1.0
    """The largest softplus."""

    def __call__(self, key, shape):
        return jnp.log(jnp.expm1(jax.random.uniform(key, shape, jnp.float32, 0.01, self.most)))


@dataclass(frozen=True)
class KERPLE(Position):
    """-r₁ log(1 + r₂ |i - j|) with trained positive r₁ and r₂ in every head (Chi et al. 2022).

    Initially r₁ is drawn up to 2 and r₂ up to 1, as in its code, so that heads reach differently far.
    """

    relative = True
    fades = True

    def parameters(self, d_model, num_heads, max_length):
        return {
            "first": Parameter((num_heads,), SoftplusUniform(2.0)),
            "second": Parameter((num_heads,), SoftplusUniform(1.0)),
        }

    def bias(self, q_BLHK, causal, params):
        return biases.LogDistance(jax.nn.softplus(params["first"]), jax.nn.softplus(params["second"]))


@dataclass(frozen=True)
class FIRE(Position):
    """A trained function of the distance divided by the query's position (Li S. et al. 2023, equation 7)."""

    hidden: int = 32
    """Width of the hidden layer."""
    slope: float = 0.1
    """Initial value of c, which scales distances inside the logarithm."""
    threshold: float = 16.0
    """Initial value of the threshold T, in tokens: positions below it count as T. A factor on it is trained. In the
    paper it is 512, of texts of 2,048 tokens."""

    def __post_init__(self):
        check_positive(self, "hidden")

    def parameters(self, d_model, num_heads, max_length):
        return {
            "slope": Parameter((), Constant(self.slope)),
            "multiplier": Parameter((), ONES),
            "into": Parameter((self.hidden,), Normal(1.0)),
            "bias": Parameter((self.hidden,), Normal(0.1)),
            "out": Parameter((self.hidden, num_heads), FanIn(), decay=False),
        }

    def bias(self, q_BLHK, causal, params):
        threshold, network = self.threshold * params["multiplier"], (params[name] for name in ("into", "bias", "out"))
        return biases.Interpolated(params["slope"], threshold, *network)


@dataclass(frozen=True)
class RelativeKeys(Position):
    """Adds q·a with a trained vector a for each clipped distance, in every layer (Shaw et al. 2018, equation 4).

    With `values` other trained vectors are added to the values (equation 3); the paper found results as good
    without them (table 3).
    """

    name = "relative_keys"
    limit: int = 16
    """Largest distance; larger ones count as this."""
    values: bool = False
    """Whether distances have vectors that are added to values, too."""
    enters_queries = True
    scaled = True
    relative = True

    def __post_init__(self):
        check_positive(self, "limit")

    @property
    def acts(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset(("bias", "to_output") if self.values else ("bias",))

    def layer_parameters(self, num_heads, head_dim, d_model, value_dim):
        distances = 2 * self.limit + 1
        table = {"table": Parameter((distances, head_dim), Normal(0.02), decay=False)}
        values = {"values": Parameter((distances, value_dim), Normal(0.02), decay=False)}
        return table | (values if self.values else {})

    def bias(self, q_BLHK, causal, params):
        return biases.ByDistance(q_BLHK.astype(jnp.float32) @ params["table"].T)

    def to_output(self, weights_BHLS, queries, keys, params):
        return biases.mixed_by_distance(weights_BHLS, params["values"], queries, keys)


@dataclass(frozen=True)
class TransformerXL(Position):
    """(q + u)·k + (q + v)·W r, with r the sinusoid of the distance, in every layer (Dai et al. 2019, section 3.3).

    Distances beyond `limit` count as the limit.
    """

    name = "transformer_xl"
    limit: int = 64
    """Largest distance, in tokens."""
    base: float = 10_000.0
    """Base of the sinusoids' frequencies."""
    enters_queries = True
    scaled = True
    relative = True

    def __post_init__(self):
        check_positive(self, "limit", "base")

    def layer_parameters(self, num_heads, head_dim, d_model, value_dim):
        return {
            "content": Parameter((num_heads, head_dim), ZEROS, decay=False),
            "place": Parameter((num_heads, head_dim), ZEROS, decay=False),
            "relative": Parameter((d_model, num_heads * head_dim), FanIn()),
        }

    def to_query(self, q_BLHK, positions_BL, params):
        return plus(q_BLHK, params["content"])

    def bias(self, q_BLHK, causal, params):
        q = q_BLHK.astype(jnp.float32) - params["content"] + params["place"]
        distances, d_model = jnp.arange(-self.limit, self.limit + 1), len(params["relative"])
        r_XD = positions.sinusoidal(jnp.abs(distances)[None], d_model, self.base)[0]
        # Sines are odd, of the query's position less the key's; `distances` are the key's less the query's.
        sign = jnp.where(jnp.arange(d_model) % 2 == 0, -jnp.sign(distances)[:, None], 1).astype(jnp.float32)
        r_XHK = ((r_XD * sign) @ params["relative"]).reshape(len(distances), -1, q.shape[-1])
        return biases.ByDistance(jnp.einsum("blhk,xhk->blhx", q, r_XHK))
