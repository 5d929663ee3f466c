"""Ids outside of a table: refused where they are numbers, unseen where a program is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import check_ids
from transformer.core.values import ConfigError


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 1], [-1, 5]], r"^token -1 at \(1, 0\) is not in \[0, 4\)$"),
        ([[0, 4], [3, 5]], r"^token 4 at \(0, 1\) is not in \[0, 4\)$"),
        (7, r"^token 7 at \(\) is not in \[0, 4\)$"),
        ([0.0, 1.0], r"^token ids are float\d\d, not an array of integers in \[0, 4\)$"),
        ([True], r"^token ids are bool, not an array"),
    ],
)
def test_the_first_id_that_is_not_there(kind, ids, message):
    with pytest.raises(ConfigError, match=message):
        check_ids(kind(ids), 4, "token")


@pytest.mark.parametrize("ids", [[1, 2], "text", None])
def test_what_is_no_array(ids):
    with pytest.raises(ConfigError, match=f"^token ids are {type(ids).__name__}, not an array of integers"):
        check_ids(ids, 4, "token")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
def test_all_that_are_there(dtype):
    check_ids(np.arange(4, dtype=dtype), 4, "token")
    check_ids(np.zeros((0, 3), dtype), 4, "token")


def test_a_program_has_nothing_of_it():
    """Traced ids are not looked at; an array that the program only refers to is."""
    ids = jnp.array([9])
    assert jax.make_jaxpr(lambda ids: check_ids(ids, 4, "token"))(ids).eqns == []
    with pytest.raises(ConfigError, match="token 9"):
        jax.make_jaxpr(lambda x: (check_ids(ids, 4, "token"), x)[1])(1.0)
