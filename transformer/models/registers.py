"""Trained vectors before the tokens of a sequence (Burtsev et al. 2020; Darcet et al. 2023)."""

from typing import Any

import jax
import jax.numpy as jnp
from einops import repeat

from transformer.core.errors import ConfigError
from transformer.core.parameters import Normal, Parameter


def check_registers(config: Any) -> None:
    """Raise `ConfigError` where their number is negative."""
    if config.registers < 0:
        raise ConfigError(f"model.registers: {config.registers} is negative")


def register_parameters(config: Any) -> dict[str, Parameter]:
    """The parameters of a model that has them, by name."""
    registers = Parameter((config.registers, config.d_model), Normal(0.02), decay=False)
    return {"registers": registers} if config.registers else {}


def behind(vectors_ED: jax.Array, x_BLD: jax.Array, valid_BL: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """(a sequence behind the vectors, (B, E + L, D); which entries of both are real, None: all)."""
    before_BED = repeat(vectors_ED.astype(x_BLD.dtype), "e d -> b e d", b=len(x_BLD))
    if valid_BL is not None:
        valid_BL = jnp.pad(valid_BL, ((0, 0), (len(vectors_ED), 0)), constant_values=True)
    return jnp.concatenate([before_BED, x_BLD], 1), valid_BL
