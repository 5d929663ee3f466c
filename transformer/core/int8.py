"""Matrices of 8-bit integers: a quarter of the bytes to read, for models that are not trained any more."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from transformer.core.errors import ConfigError

LARGEST = 127.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Int8:
    """A kernel (…, D, F) as integers and a factor for each of its F columns; it stands in place of the array.

    The largest number of a column becomes ±127 (Jacob et al. 2018, section 2, without a zero point).
    """

    values: jax.Array
    factor: jax.Array

    @classmethod
    def of(cls, kernel: jax.Array) -> "Int8":
        """The nearest numbers."""
        factor = _factor(kernel, axis=-2)
        return cls(_rounded(kernel, factor), jnp.squeeze(factor, -2))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index) -> "Int8":
        """A layer, or with `...` all: what modules ask of a parameter."""
        return Int8(self.values[index], self.factor[index])

    __iter__ = None
    """Its rows are no numbers, and `__getitem__` has no end."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ConfigError("parameters in 8 bits are no array; take those from before quantize")

    def beside(self, *others: "Int8") -> "Int8":
        """One kernel of the columns of several."""
        all_ = (self, *others)
        return Int8(jnp.concatenate([k.values for k in all_], -1), jnp.concatenate([k.factor for k in all_], -1))

    def product(self, x: jax.Array, dtype: DTypeLike) -> jax.Array:
        """(…, D) times the kernel, (…, F), as a product of integers: each row of x is rounded like a column."""
        highest = _factor(x.astype(jnp.float32), axis=-1)
        over_D = (((x.ndim - 1,), (0,)), ((), ()))
        sums = lax.dot_general(_rounded(x, highest), self.values, over_D, preferred_element_type=jnp.int32)
        return (sums.astype(jnp.float32) * highest * self.factor).astype(dtype)


def _factor(a: jax.Array, axis: int) -> jax.Array:
    """What ±127 stands for; 1 where all numbers are 0."""
    highest = jnp.abs(a).max(axis, keepdims=True)
    return jnp.where(highest == 0, 1.0, highest / LARGEST).astype(jnp.float32)


def _rounded(a: jax.Array, factor: jax.Array) -> jax.Array:
    return jnp.round(a.astype(jnp.float32) / factor).astype(jnp.int8)
