"""Positional schemes: what they add to the embedding, to queries and keys, or to the scores."""

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from transformer.config.parameters import ZEROS, Constant, FanIn, Normal, Parameter
from transformer.config.variant import ConfigError, Variant
from transformer.functional import biases, positions
from transformer.functional.biases import Bias
from transformer.functional.masks import Tokens

ScoreFunction = Callable[[jax.Array], jax.Array]


class Position(Variant, abc.ABC):
    """A positional scheme. Each place where positions can enter is one method; the default is nowhere.

    `positions_BL` is (B or 1, L) int32.
    """

    extrapolates: ClassVar[bool] = True
    """Whether positions past `max_length` have a meaning."""
    biased: ClassVar[bool] = False
    """Whether it adds a bias to the scores."""
    enters_queries: ClassVar[bool] = False
    """Whether it enters in products of queries."""
    relative: ClassVar[bool] = False
    """Whether only distances count: all positions may be moved together."""
    orders: ClassVar[bool] = True
    """Whether it tells tokens apart by their position."""
    remembers: ClassVar[bool] = False
    """Whether a number for each map of attention is kept with every key (`key_features`)."""
    rescores: ClassVar[bool] = False
    """Whether it changes scores by what all scores of a query are (`score`), which then have to be formed."""
    fades: ClassVar[bool] = False
    """Whether its bias falls with distance from the beginning."""

    def enters_layers(self, config: Any) -> bool:
        """Whether a layer can have it and others not: nothing of it stands outside of the layers."""
        shared = self.parameters(config.d_model, config.num_heads, config.max_length)
        return not shared and not self.enters_embedding()

    def enters_embedding(self) -> bool:
        """Whether it is added to the embedding."""
        return type(self).to_embedding is not Position.to_embedding

    def check(self, head_dim: int) -> None:
        """Raise `ConfigError` where the scheme does not fit the head size."""

    def on_grid(self, columns: int, first: int) -> "Position":
        """The scheme for image patches, row by row, `columns` to a row; the first patch has position `first`."""
        return self

    def parameters(self, d_model: int, num_heads: int, max_length: int) -> dict[str, Parameter]:
        """The parameters it owns, by name, shared by all layers."""
        return {}

    def layer_parameters(self, num_heads: int, head_dim: int, d_model: int) -> dict[str, Parameter]:
        """The parameters it owns in every layer, by name."""
        return {}

    def training_positions(self, max_length: int, key: jax.Array) -> jax.Array | None:
        """What positions 0, 1, … are replaced by while training, (max_length,) int32; None: nothing."""
        return None

    def to_embedding(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """(B or 1, L, D) float32 that is added to the token embedding."""
        return None

    def to_query_key_input(self, positions_BL: jax.Array, d_model: int, params) -> jax.Array | None:
        """(B or 1, L, D) float32 that is added to the input of the query and key projections of every layer."""
        return None

    def to_query(self, q_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Queries with their position in them."""
        return q_BLHK

    def to_key(self, k_BLHK: jax.Array, positions_BL: jax.Array, params) -> jax.Array:
        """Keys with their position in them."""
        return k_BLHK

    def bias(self, q_BLHK: jax.Array, causal: bool, params) -> Bias | None:
        """A value added to the scaled scores, one number a head; it may depend on the queries."""
        return None

    def score(self, q_BLHK: jax.Array, queries: Tokens, keys: Tokens, in_slots: bool, params) -> ScoreFunction | None:
        """A function of all scaled scores (B, G, H/G, L, S) before the bias; `in_slots` as in `memory_bias`."""
        return None

    def key_features(self, x_BLD: jax.Array, params) -> jax.Array:
        """(B, L, H) float32 of every token, which are kept with its keys."""
        raise NotImplementedError(f"{self.name} remembers, and does not define key_features")

    def memory_bias(self, features_BSH: jax.Array, queries: Tokens, keys: Tokens, in_slots: bool) -> Bias:
        """A value added to the scaled scores, made of what was kept.

        `in_slots`: the keys lie in the slots of a cache, in any order, and the queries are among them; otherwise
        queries and keys are the same tokens in their order.
        """
        raise NotImplementedError(f"{self.name} remembers, and does not define memory_bias")


@dataclass(frozen=True)
class NoPosition(Position):
    """No positional encoding; a causal mask still tells positions apart (Kazemnejad et al. 2023)."""

    name = "none"
    relative = True
    orders = False


@dataclass(frozen=True)
class Sinusoidal(Position):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017, section 3.5)."""

    base: float = 10_000.0

    def to_embedding(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base)


@dataclass(frozen=True)
class Sinusoidal2D(Position):
    """Sinusoids of the row in one half of the features, of the column in the other (He et al. 2021, MAE)."""

    name = "sinusoidal_2d"
    base: float = 10_000.0
    columns: int = 1
    """Patches in a row of the image; a vision model sets it."""
    first: int = 0
    """Position of the first patch; what stands before it has row -1."""

    def on_grid(self, columns, first):
        return replace(self, columns=columns, first=first)

    def to_embedding(self, positions_BL, d_model, params):
        row, column = jnp.divmod(positions_BL - self.first, self.columns)
        half = d_model // 2
        return jnp.concatenate(
            [positions.sinusoidal(row, half, self.base), positions.sinusoidal(column, d_model - half, self.base)], -1
        )


@dataclass(frozen=True)
class QueryKeySinusoidal(Position):
    """Sinusoids that enter the queries and keys of every layer and never the values.

    (Shortformer, Press et al. 2020, section 5; DETR, Carion et al. 2020.)
    """

    name = "query_key_sinusoidal"
    base: float = 10_000.0
    enters_queries = True

    def to_query_key_input(self, positions_BL, d_model, params):
        return positions.sinusoidal(positions_BL, d_model, self.base)


@dataclass(frozen=True)
class Learned(Position):
    """One trained vector per position below `max_length` (Gehring et al. 2017)."""

    std: float = 0.02
    extrapolates = False

    def parameters(self, d_model, num_heads, max_length):
        return {"table": Parameter((max_length, d_model), Normal(self.std))}

    def to_embedding(self, positions_BL, d_model, params):
        return params["table"].at[positions_BL].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


class RoPEScaling(Variant):
    """How rotary frequencies are changed for texts longer than those of the training."""

    def __call__(self, frequencies_F: jax.Array, base: float, size: int) -> jax.Array:
        return frequencies_F

    def temperature(self) -> float:
        """The factor on rotated queries and keys."""
        return 1.0


@dataclass(frozen=True)
class NoScaling(RoPEScaling):
    """Frequencies as they are."""

    name = "none"


@dataclass(frozen=True)
class LinearScaling(RoPEScaling):
    """Positions over `factor` (position interpolation, Chen S. et al. 2023, equation 4)."""

    name = "linear"
    factor: float = 2.0

    def __call__(self, frequencies_F, base, size):
        return frequencies_F / self.factor


@dataclass(frozen=True)
class NTKScaling(RoPEScaling):
    """The base times factor^(K/(K-2)): the slowest pair is interpolated, the fastest stays (bloc97, 2023)."""

    name = "ntk"
    factor: float = 2.0

    def __call__(self, frequencies_F, base, size):
        return positions.frequencies(size, base * self.factor ** (size / max(size - 2, 1)))


@dataclass(frozen=True)
class YaRN(RoPEScaling):
    """Slow pairs are interpolated, fast ones stay, and scores are sharpened (Peng et al. 2023, equations 18 to 22)."""

    factor: float = 2.0
    original_length: int = 2048
    """Length of the training, in tokens."""
    slow: float = 1.0
    fast: float = 32.0

    def __call__(self, frequencies_F, base, size):
        ramp = positions.yarn_ramp(frequencies_F, self.original_length, self.slow, self.fast)
        return frequencies_F * (ramp + (1 - ramp) / self.factor)

    def temperature(self):
        return 0.1 * math.log(self.factor) + 1


@dataclass(frozen=True)
class Llama3Scaling(YaRN):
    """The passage of `yarn` with other constants, scores as they are (Llama 3.1, 2024)."""

    name = "llama3"
    factor: float = 8.0
    original_length: int = 8192
    fast: float = 4.0

    def temperature(self):
        return 1.0


@dataclass(frozen=True)
class RoPE(Position):
    """Rotary positions (Su et al. 2021); see `transformer.functional.positions.rotary`."""

    base: float = 10_000.0
    fraction: float = 1.0
    """Share of a head's features that is rotated, from the first (GPT-NeoX)."""
    interleaved: bool = False
    scaling: RoPEScaling = NoScaling()
    enters_queries = True
    relative = True

    def check(self, head_dim):
        size = int(head_dim * self.fraction)
        if size < 2 or size % 2 or size > head_dim:
            raise ConfigError(
                f"rope: fraction {self.fraction} of head_dim {head_dim} is {size} features, not an even number up to it"
            )

    def _rotate(self, x_BLHK, positions_BL):
        size = int(x_BLHK.shape[-1] * self.fraction)
        frequencies_F = self.scaling(positions.frequencies(size, self.base), self.base, size)
        rotated = positions.rotary(x_BLHK, positions_BL, frequencies_F, interleaved=self.interleaved)
        temperature = self.scaling.temperature()
        return rotated if temperature == 1.0 else rotated * jnp.asarray(temperature, rotated.dtype)

    def to_query(self, q_BLHK, positions_BL, params):
        return self._rotate(q_BLHK, positions_BL)

    def to_key(self, k_BLHK, positions_BL, params):
        return self._rotate(k_BLHK, positions_BL)


@dataclass(frozen=True)
class XPos(Position):
    """Rotary positions whose products fade with distance (Sun Y. et al. 2022)."""

    base: float = 10_000.0
    decay_base: float = 512.0
    """Tokens over which they fade."""
    enters_queries = True
    relative = True

    def check(self, head_dim):
        if head_dim % 2:
            raise ConfigError(f"xpos: head_dim {head_dim} is not even")

    def _rotate(self, x_BLHK, positions_BL, sign):
        rotated = positions.rotary(x_BLHK, positions_BL, positions.frequencies(x_BLHK.shape[-1], self.base))
        return positions.xpos_decay(rotated, positions_BL, base=self.decay_base, sign=sign)

    def to_query(self, q_BLHK, positions_BL, params):
        return self._rotate(q_BLHK, positions_BL, 1)

    def to_key(self, k_BLHK, positions_BL, params):
        return self._rotate(k_BLHK, positions_BL, -1)


@dataclass(frozen=True)
class RoPE2D(Position):
    """Half of a head's features rotated by the row of a patch, half by its column (Heo et al. 2024, section 3.1)."""

    name = "rope_2d"
    base: float = 100.0
    columns: int = 1
    """Patches in a row of the image; a vision model sets it."""
    first: int = 0
    """Position of the first patch; what stands before it has row -1."""
    enters_queries = True
    relative = True

    def check(self, head_dim):
        if head_dim % 4:
            raise ConfigError(f"rope_2d: head_dim {head_dim} is not a multiple of 4")

    def on_grid(self, columns, first):
        return replace(self, columns=columns, first=first)

    def _rotate(self, x_BLHK, positions_BL):
        half = x_BLHK.shape[-1] // 2
        places = jnp.divmod(positions_BL - self.first, self.columns)
        parts = (x_BLHK[..., :half], x_BLHK[..., half:])
        rates = positions.frequencies(half, self.base)
        rotated = [positions.rotary(part, place, rates) for part, place in zip(parts, places, strict=True)]
        return jnp.concatenate(rotated, -1)

    def to_query(self, q_BLHK, positions_BL, params):
        return self._rotate(q_BLHK, positions_BL)

    def to_key(self, k_BLHK, positions_BL, params):
        return self._rotate(k_BLHK, positions_BL)


@dataclass(frozen=True)
class ALiBi(Position):
    """A bias that falls linearly with distance (Press et al. 2021)."""

    biased = True
    relative = True
    fades = True

    def bias(self, q_BLHK, causal, params):
        return biases.LinearDistance(jnp.asarray(biases.alibi_slopes(q_BLHK.shape[2]), jnp.float32))


@dataclass(frozen=True)
class T5Bias(Position):
    """A trained bias for each bucket of distances and each head (Raffel et al. 2019)."""

    name = "t5_bias"
    num_buckets: int = 32
    max_distance: int = 128
    """Further tokens are in the last bucket."""
    shared: bool = True
    """Whether all layers have the same; otherwise each its own."""
    biased = True
    relative = True

    def __post_init__(self):
        if self.num_buckets < 4 or self.max_distance <= self.num_buckets // 2:
            raise ConfigError(f"t5_bias: {self.num_buckets} buckets do not reach {self.max_distance} tokens")

    def _table(self, num_heads):
        return {"table": Parameter((self.num_buckets, num_heads), Normal(0.02), decay=False)}

    def parameters(self, d_model, num_heads, max_length):
        return self._table(num_heads) if self.shared else {}

    def layer_parameters(self, num_heads, head_dim, d_model):
        return {} if self.shared else self._table(num_heads)

    def bias(self, q_BLHK, causal, params):
        return biases.Bucketed(params["table"], self.max_distance, causal)


@dataclass(frozen=True)
class KERPLE(Position):
    """-r₁ log(1 + r₂ |i - j|) with trained positive r₁ and r₂ in every head (Chi et al. 2022)."""

    biased = True
    relative = True
    fades = True

    def parameters(self, d_model, num_heads, max_length):
        return {"first": Parameter((num_heads,), Constant(0.5)), "second": Parameter((num_heads,), Constant(0.5))}

    def bias(self, q_BLHK, causal, params):
        return biases.LogDistance(jax.nn.softplus(params["first"]), jax.nn.softplus(params["second"]))


@dataclass(frozen=True)
class FIRE(Position):
    """A trained function of the distance over the query's position (Li S. et al. 2023)."""

    hidden: int = 32
    slope: float = 0.1
    """Where c begins."""
    threshold: float = 16.0
    """Where the threshold T begins, in tokens."""
    biased = True

    def parameters(self, d_model, num_heads, max_length):
        return {
            "slope": Parameter((), Constant(self.slope)),
            "threshold": Parameter((), Constant(self.threshold)),
            "into": Parameter((self.hidden,), Normal(1.0)),
            "bias": Parameter((self.hidden,), Normal(0.1)),
            "out": Parameter((self.hidden, num_heads), FanIn(), decay=False),
        }

    def bias(self, q_BLHK, causal, params):
        names = ("slope", "threshold", "into", "bias", "out")
        return biases.Interpolated(*(params[name] for name in names))


@dataclass(frozen=True)
class RelativeKeys(Position):
    """q·a for a trained vector a of each clipped distance, in every layer (Shaw et al. 2018, equations 2 and 4).

    The paper's vectors for values are left out: it found no loss without them (table 3).
    """

    name = "relative_keys"
    limit: int = 16
    """Tokens further away count as this far."""
    biased = True
    enters_queries = True
    relative = True

    def __post_init__(self):
        if self.limit < 1:
            raise ConfigError(f"relative_keys.limit: {self.limit} is not a positive number")

    def layer_parameters(self, num_heads, head_dim, d_model):
        return {"table": Parameter((2 * self.limit + 1, head_dim), Normal(0.02))}

    def bias(self, q_BLHK, causal, params):
        scale = q_BLHK.shape[-1] ** -0.5
        return biases.ByDistance(scale * (q_BLHK.astype(jnp.float32) @ params["table"].T))


@dataclass(frozen=True)
class TransformerXL(Position):
    """(q + u)·k + (q + v)·W r of the distance, r sinusoidal (Dai et al. 2019, section 3.3), in every layer.

    Distances up to `limit`, further ones as the limit.
    """

    name = "transformer_xl"
    limit: int = 64
    base: float = 10_000.0
    biased = True
    enters_queries = True
    relative = True

    def __post_init__(self):
        if self.limit < 1:
            raise ConfigError(f"transformer_xl.limit: {self.limit} is not a positive number")

    def layer_parameters(self, num_heads, head_dim, d_model):
        return {
            "content": Parameter((num_heads, head_dim), ZEROS, decay=False),
            "place": Parameter((num_heads, head_dim), ZEROS, decay=False),
            "relative": Parameter((head_dim, num_heads * head_dim), FanIn()),
        }

    def to_query(self, q_BLHK, positions_BL, params):
        return q_BLHK + params["content"].astype(q_BLHK.dtype)

    def bias(self, q_BLHK, causal, params):
        q = q_BLHK.astype(jnp.float32) - params["content"] + params["place"]
        head_dim = q.shape[-1]
        distances = jnp.arange(-self.limit, self.limit + 1)
        r_XK = positions.sinusoidal(jnp.abs(distances)[None], head_dim, self.base)[0]
        # Sines are odd: keys on either side of the query differ.
        sign = jnp.where(jnp.arange(head_dim) % 2 == 0, jnp.sign(distances)[:, None], 1).astype(jnp.float32)
        r_XHK = ((r_XK * sign) @ params["relative"]).reshape(len(distances), -1, head_dim)
        return biases.ByDistance(head_dim**-0.5 * jnp.einsum("blhk,xhk->blhx", q, r_XHK))


@dataclass(frozen=True)
class Forgetting(Position):
    """The sum of log f of all tokens from the key to the query, f = σ(w·x + b) of each head (Lin Z. et al. 2025).

    The forgetting transformer (FoX, equation 5), ALiBi whose slope depends on the data. In an encoder the
    sum of those between the two, in either direction.
    """

    initial: float = 2.0
    """Where b begins; the paper's is 0."""
    biased = True
    relative = True
    remembers = True

    def layer_parameters(self, num_heads, head_dim, d_model):
        return {
            "forget": Parameter((d_model, num_heads), FanIn()),
            "forget_bias": Parameter((num_heads,), Constant(self.initial)),
        }

    def key_features(self, x_BLD, params):
        return jax.nn.log_sigmoid(x_BLD.astype(jnp.float32) @ params["forget"] + params["forget_bias"])

    def memory_bias(self, features_BSH, queries, keys, in_slots):
        features = features_BSH if keys.valid is None else features_BSH * keys.valid[..., None].astype(jnp.float32)
        if not in_slots:
            sums_BSH = jnp.cumsum(features, 1)
            return biases.Cumulated(sums_BSH, sums_BSH)
        earlier_BSS = keys.positions[:, None, :] <= keys.positions[:, :, None]
        sums_BSH = earlier_BSS.astype(jnp.float32) @ features
        same_BLS = queries.positions[:, :, None] == keys.positions[:, None, :]
        same_BLS = same_BLS if keys.valid is None else same_BLS & keys.valid[:, None]
        return biases.Cumulated(same_BLS.astype(jnp.float32) @ sums_BSH, sums_BSH)


@dataclass(frozen=True)
class Contextual(Position):
    """A key is as far away as the gates between it and the query say, Σ σ(q·k) (CoPE, Golovneva et al. 2024).

    q·e is added to the score, e a trained vector for each whole distance up to `limit`, interpolated between
    two (equations 3 to 5). Gates are of scaled scores, and so are the added ones.
    """

    limit: int = 32
    biased = True
    enters_queries = True
    rescores = True
    relative = True

    def __post_init__(self):
        if self.limit < 1:
            raise ConfigError(f"contextual.limit: {self.limit} is not a positive number")

    def layer_parameters(self, num_heads, head_dim, d_model):
        return {"table": Parameter((self.limit + 1, head_dim), Normal(0.02))}

    def score(self, q_BLHK, queries, keys, in_slots, params):
        scale = q_BLHK.shape[-1] ** -0.5
        own_BLHX = scale * (q_BLHK.astype(jnp.float32) @ params["table"].T)
        return functools.partial(biases.add_contextual, own_BLHX, queries, keys, in_slots)


@dataclass(frozen=True)
class Randomized(Position):
    """While training, positions are a sorted random choice from a longer range (Ruoss et al. 2023, section 3).

    The scheme inside sees distances in training that it meets again in longer texts.
    """

    scheme: Position = ALiBi()
    longest: int = 2048
    """Positions are drawn below this number."""

    @property
    def extrapolates(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.extrapolates

    @property
    def biased(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.biased

    @property
    def enters_queries(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.enters_queries

    @property
    def relative(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.relative

    @property
    def remembers(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.remembers

    @property
    def rescores(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.rescores

    @property
    def orders(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.orders

    def check(self, head_dim):
        self.scheme.check(head_dim)

    def enters_embedding(self):
        return self.scheme.enters_embedding()

    def on_grid(self, columns, first):
        raise ConfigError(f"model.position: {self} has no meaning on a grid of patches; use {self.scheme}")

    def parameters(self, d_model, num_heads, max_length):
        return self.scheme.parameters(d_model, num_heads, max(max_length, self.longest))

    def layer_parameters(self, num_heads, head_dim, d_model):
        return self.scheme.layer_parameters(num_heads, head_dim, d_model)

    def training_positions(self, max_length, key):
        if self.longest < max_length:
            raise ConfigError(f"randomized.longest: {self.longest} positions are fewer than max_length {max_length}")
        return jnp.sort(jax.random.permutation(key, self.longest)[:max_length])

    def to_embedding(self, positions_BL, d_model, params):
        return self.scheme.to_embedding(positions_BL, d_model, params)

    def to_query_key_input(self, positions_BL, d_model, params):
        return self.scheme.to_query_key_input(positions_BL, d_model, params)

    def to_query(self, q_BLHK, positions_BL, params):
        return self.scheme.to_query(q_BLHK, positions_BL, params)

    def to_key(self, k_BLHK, positions_BL, params):
        return self.scheme.to_key(k_BLHK, positions_BL, params)

    def bias(self, q_BLHK, causal, params):
        return self.scheme.bias(q_BLHK, causal, params)

    def score(self, q_BLHK, queries, keys, in_slots, params):
        return self.scheme.score(q_BLHK, queries, keys, in_slots, params)

    def key_features(self, x_BLD, params):
        return self.scheme.key_features(x_BLD, params)

    def memory_bias(self, features_BSH, queries, keys, in_slots):
        return self.scheme.memory_bias(features_BSH, queries, keys, in_slots)
