"""Positional schemes that rotate queries and keys."""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from transformer.core.checks import check_positive
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.functional import positions
from transformer.positions.position import Position


class RoPEScaling(Variant):
    """How rotary frequencies change for texts longer than those of training."""

    def __call__(self, frequencies_F: jax.Array, base: float, size: int) -> jax.Array:
        return frequencies_F

    def temperature(self) -> float:
        """The factor on rotated queries and keys."""
        return 1.0


def _check_factor(scaling: RoPEScaling, factor: float) -> None:
    if not factor >= 1:
        raise ConfigError(f"{scaling.name}.factor: {factor} is less than 1, but it extends to longer texts; use none")


@dataclass(frozen=True)
class LinearScaling(RoPEScaling):
    """Divides positions by `factor` (position interpolation, Chen S. et al. 2023, equation 4)."""

    name = "linear"
    factor: float = 2.0
    """Length of texts over that in training, at least 1."""

    def __post_init__(self):
        _check_factor(self, self.factor)

    def __call__(self, frequencies_F, base, size):
        return frequencies_F / self.factor


@dataclass(frozen=True)
class NTKScaling(RoPEScaling):
    """Multiplies the base by factor^(K/(K-2)): the slowest pair is interpolated, the fastest stays (bloc97, 2023).

    Dynamic NTK has a factor for each length of text: `config.replace(...)` with another one is another pure function
    of the same parameters.
    """

    name = "ntk"
    factor: float = 2.0
    """Length of texts over that in training, at least 1."""

    def __post_init__(self):
        _check_factor(self, self.factor)

    def __call__(self, frequencies_F, base, size):
        return positions.frequencies(size, base * self.factor ** (size / max(size - 2, 1)))


@dataclass(frozen=True)
class YaRN(RoPEScaling):
    """Interpolates slow pairs, keeps fast ones, and sharpens the scores (Peng et al. 2023, equations 18 to 22)."""

    factor: float = 2.0
    """Length of texts over that in training, at least 1."""
    original_length: int = 2048
    """Length of texts in training, in tokens."""
    slow: float = 1.0
    """Pairs with fewer turns over the original length are interpolated."""
    fast: float = 32.0
    """Pairs with more turns over the original length stay as they are."""

    def __post_init__(self):
        _check_factor(self, self.factor)
        check_positive(self, "original_length", "slow")
        if not self.slow < self.fast:
            raise ConfigError(f"{self.name}.fast: {self.fast} turns are not more than slow, {self.slow}")

    def __call__(self, frequencies_F, base, size):
        ramp = positions.yarn_ramp(frequencies_F, self.original_length, self.slow, self.fast)
        return frequencies_F * (ramp + (1 - ramp) / self.factor)

    def temperature(self):
        return 0.1 * math.log(self.factor) + 1


@dataclass(frozen=True)
class Llama3Scaling(YaRN):
    """`yarn` with other constants and without sharper scores (Llama 3.1, 2024)."""

    name = "llama3"
    factor: float = 8.0
    original_length: int = 8192
    fast: float = 4.0

    def temperature(self):
        return 1.0


@dataclass(frozen=True)
class YaRNByPair(YaRN):
    """`yarn` whose ramp is linear in the number of the pair, as in its authors' code and in published models.

    (github.com/jquesnelle/yarn, Peng et al. 2023.) Pairs that turn between `slow` and `fast` times are interpolated in
    the share of their place among them, where the paper's equation 18 says the share of their turns.
    """

    name = "yarn_by_pair"
    whole: bool = True
    """Whether the ramp begins and ends at a pair, the next one outside (gpt-oss does not round)."""
    sharpening: float | None = None
    """The factor on rotated queries and keys; None: 0.1 log `factor` + 1."""

    def __post_init__(self):
        super().__post_init__()
        if self.sharpening is not None:
            check_positive(self, "sharpening")

    def __call__(self, frequencies_F, base, size):
        if base <= 1:
            raise ConfigError(f"{self.name}: with base {base} later pairs are not slower and have no ramp; use yarn")
        # The numbers of the pairs that turn `fast` and `slow` times; from pair to pair the logarithm falls by `step`.
        step = 2 * math.log(base) / size
        turns = self.original_length / (2 * math.pi)
        first, last = (math.log(turns / count) / step for count in (self.fast, self.slow))
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, size - 1)
        pairs_F = jnp.arange(len(frequencies_F), dtype=jnp.float32)
        ramp = jnp.clip((pairs_F - first) / ((last - first) or 1e-3), 0.0, 1.0)
        return frequencies_F * (1 - ramp + ramp / self.factor)

    def temperature(self):
        return super().temperature() if self.sharpening is None else self.sharpening


@dataclass(frozen=True)
class RoPE(Position):
    """Rotary positions (Su et al. 2021); see `transformer.functional.positions.rotary`."""

    base: float = 10_000.0
    """Pair i of n turns by base^(-i/n) radians per position."""
    fraction: float = 1.0
    """Share of a head's features that is rotated, from the first (GPT-NeoX)."""
    interleaved: bool = False
    """Whether pairs are features (0, 1), (2, 3), … as in the paper; otherwise i and i + n (GPT-NeoX, Llama)."""
    scaling: RoPEScaling | None = None
    """Change of frequencies for longer texts; None: none."""
    enters_queries = True
    relative = True

    def __post_init__(self):
        check_positive(self, "base", "fraction")

    def _rotated(self, head_dim: int) -> int:
        """Number of features that are rotated; a product that is off by rounding is the whole number."""
        return int(head_dim * self.fraction + 1e-9)

    def check(self, head_dim):
        size = self._rotated(head_dim)
        if size < 2 or size % 2 or size > head_dim:
            raise ConfigError(
                f"rope: fraction {self.fraction} of head_dim {head_dim} is {size} features, not an even number up to it"
            )

    def _rotate(self, x_BLHK, positions_BL):
        size = self._rotated(x_BLHK.shape[-1])
        frequencies_F, temperature = positions.frequencies(size, self.base), 1.0
        if self.scaling is not None:
            frequencies_F, temperature = self.scaling(frequencies_F, self.base, size), self.scaling.temperature()
        rotated = positions.rotary(x_BLHK, positions_BL, frequencies_F, interleaved=self.interleaved)
        # Features that are not rotated are not sharpened either.
        return rotated if temperature == 1.0 else rotated.at[..., :size].multiply(temperature)

    def to_query(self, q_BLHK, positions_BL, params):
        return self._rotate(q_BLHK, positions_BL)

    def to_key(self, k_BLHK, positions_BL, params):
        return self._rotate(k_BLHK, positions_BL)


@dataclass(frozen=True)
class XPos(Position):
    """Rotary positions whose products with earlier tokens decay with distance (Sun Y. et al. 2022).

    Those with later tokens, which encoders and prefixes see, grow by as much. Queries and keys are each multiplied by
    what the products decay by since position 0, which leaves float32 after 69 times `decay_base` positions.
    """

    base: float = 10_000.0
    """Pair i of n turns by base^(-i/n) radians per position."""
    decay_base: float = 512.0
    """Distance in tokens over which a pair's product decays by its ζ."""
    enters_queries = True
    relative = True

    def __post_init__(self):
        check_positive(self, "base", "decay_base")

    def check(self, head_dim):
        if head_dim % 2:
            raise ConfigError(f"xpos: head_dim {head_dim} is not even")

    def parameters(self, d_model, num_heads, max_length):
        if max_length > (most := int(64 * self.decay_base)):
            raise ConfigError(f"xpos: max_length {max_length} is more than {most}, 64 times decay_base; use rope")
        return {}

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
    """Base of the frequencies."""
    columns: int = 1
    """Patches in a row of the image; a vision model sets it."""
    first: int = 0
    """Position of the first patch; tokens before it are in rows -1, -2, …, as if there were patches."""
    enters_queries = True
    relative = True
    counts_grid = True

    def __post_init__(self):
        check_positive(self, "base", "columns")

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
