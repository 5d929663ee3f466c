"""A linear layer."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from transformer.config.parameters import ZEROS, Initializer, Parameter
from transformer.functional.dense import dense
from transformer.functional.devices import MODEL, axis_size
from transformer.modules.parameter import at, make_parameter


class Dense(nnx.Module):
    """x · kernel + bias, with a (D, F) kernel."""

    def __init__(
        self, d_in: int, d_out: int, *, initializer: Initializer, bias: bool, key: jax.Array, gain: float = 1.0
    ):
        self.kernel = make_parameter(Parameter((d_in, d_out), initializer, gain=gain), at(key, "kernel"))
        self.bias = make_parameter(Parameter((d_out,), ZEROS), at(key, "bias")) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        return fused(x, [self])[0]


def fused(x: jax.Array, layers: Sequence[Dense]) -> list[jax.Array]:
    """The outputs of several layers with the same input, from one product with their concatenated kernels.

    Kernels cut into columns over several devices are not concatenated: no device has adjacent columns of all.
    """
    kernels = [layer.kernel[...] for layer in layers]
    if len(kernels) == 1 or axis_size(MODEL) > 1:
        parts = [dense(x, kernel) for kernel in kernels]
    else:
        ends = np.cumsum([kernel.shape[1] for kernel in kernels])[:-1]
        parts = jnp.split(dense(x, jnp.concatenate(kernels, 1)), ends, axis=-1)
    return [
        part if layer.bias is None else part + layer.bias[...].astype(part.dtype)
        for part, layer in zip(parts, layers, strict=True)
    ]
