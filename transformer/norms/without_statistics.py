"""What takes the place of a norm and computes no statistics."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.arrays import plus
from transformer.core.parameters import ONES, ZEROS, Constant, Normal, Parameter
from transformer.norms.norm import Norm


@dataclass(frozen=True)
class DyT(Norm):
    """scale · tanh(αx) + bias, without statistics (dynamic tanh, Zhu et al. 2025, equation 1).

    Its language models begin with a larger α before attention than elsewhere, 0.8 and 0.2 at 7B; here all have one.
    """

    alpha: float = 0.5
    """Initial value of α."""

    def parameters(self, d_model):
        return {
            "alpha": Parameter((), Constant(self.alpha)),
            "scale": Parameter((d_model,), ONES),
            "bias": Parameter((d_model,), ZEROS),
        }

    def recipe(self, d_model):
        # Zhu et al. multiply embeddings by √d so that the stream begins with a standard deviation near 1; at their
        # d of thousands a deviation of 0.02 is enough for that.
        return {"model.embedding.scaled": True, "model.embedding.initializer": Normal(d_model**-0.5)}

    def squash(self, x, params):
        """The bounded function of x, before scale and bias."""
        return jnp.tanh(params["alpha"] * x)

    def __call__(self, x_BLD, params):
        squashed = self.squash(x_BLD.astype(jnp.float32), params)
        return (params["scale"] * squashed + params["bias"]).astype(x_BLD.dtype)


@dataclass(frozen=True)
class Derf(DyT):
    """scale · erf(αx + s) + bias (Chen et al. 2025)."""

    def parameters(self, d_model):
        return super().parameters(d_model) | {"shift": Parameter((), ZEROS)}

    def squash(self, x, params):
        return jax.lax.erf(params["alpha"] * x + params["shift"])


@dataclass(frozen=True)
class Shift(Norm):
    """x + c with one trained number c, initially 0, which stands before each matrix in Fixup (Zhang H. et al. 2019)."""

    begins_as = "none"
    bounds = False

    def parameters(self, d_model):
        return {"shift": Parameter((), ZEROS)}

    def __call__(self, x_BLD, params):
        return plus(x_BLD, params["shift"])
