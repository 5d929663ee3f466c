"""A part of attention that takes a token's own value out of what its heads found."""

from dataclasses import dataclass

import jax.numpy as jnp

from transformer.core.errors import ConfigError
from transformer.mixers.attention.part import Part


@dataclass(frozen=True)
class XSA(Part):
    """Exclusive self-attention: y - (y·v / ‖v‖²) v with y the output of a head and v the token's value (Zhai 2026).

    A token that sees no other one has the output 0.
    """

    name = "xsa"
    crosses = False

    def check(self, attention, model):
        if "value" not in attention.roles:
            raise ConfigError(f"mixer.sharing: layers without values of their own have none for {self}; use values")

    def mix(self, out_BLHV, own_BLHV, x_BLD, params):
        assert own_BLHV is not None
        out, own = out_BLHV.astype(jnp.float32), own_BLHV.astype(jnp.float32)
        square = jnp.square(own).sum(-1, keepdims=True)
        share = (out * own).sum(-1, keepdims=True) / jnp.where(square == 0, 1.0, square)
        rest = out - share * own
        rounding = 4 * float(jnp.finfo(out_BLHV.dtype).eps) * jnp.linalg.norm(out, axis=-1, keepdims=True)
        # A norm that follows would enlarge what rounding leaves of a token that sees itself only.
        return jnp.where(jnp.linalg.norm(rest, axis=-1, keepdims=True) > rounding, rest, 0.0).astype(out_BLHV.dtype)
