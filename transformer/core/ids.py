"""Ids: rows of a table, which are integers in [0, its length)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from transformer.core.values import ConfigError


def check_ids(ids: Any, limit: int, what: str) -> None:
    """Raise `ConfigError` that names the first id that is not in [0, limit), and where it is.

    Ids that a program is traced with are no numbers yet, and neither are those on other hosts: they are not looked at,
    and nothing is added to a compiled program, in which such an id gives NaN.

    Args:
      ids: an array of any shape.
      limit: one more than the largest id.
      what: the word for one of them, such as `token`.
    """
    if not isinstance(ids, np.ndarray | jax.Array) or not jnp.issubdtype(ids.dtype, jnp.integer):
        given = getattr(ids, "dtype", type(ids).__name__)
        raise ConfigError(f"{what} ids are {given}, not an array of integers in [0, {limit})")
    if isinstance(ids, Tracer) or (isinstance(ids, jax.Array) and not ids.is_fully_addressable):
        return
    numbers = np.asarray(ids)
    if len(wrong := np.argwhere((numbers < 0) | (numbers >= limit))):
        place = tuple(int(i) for i in wrong[0])
        raise ConfigError(f"{what} {numbers[place]} at {place} is not in [0, {limit})")
