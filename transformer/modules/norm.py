"""A normalization with its parameters."""

import jax
from flax import nnx

from transformer.config.norms import Norm
from transformer.functional.names import scope
from transformer.modules.parameter import Parameters, at


class NormLayer(nnx.Module):
    """A `Norm` of the config with the parameters it asks for."""

    def __init__(self, norm: Norm, d_model: int, name: str, *, key: jax.Array):
        self.norm, self.name = norm, name
        self.params = Parameters(norm.parameters(d_model), key=at(key, name))

    def __call__(self, x_BLD: jax.Array, valid_BL: jax.Array | None = None) -> jax.Array:
        with scope(self.name):
            return self.norm.normalize(x_BLD, valid_BL, self.params())
