"""What a traced program is made of, for whoever goes through it step by step."""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def called(step: JaxprEqn) -> tuple[Jaxpr, Sequence[Any]] | None:
    """The program that a step calls, and its constants, which come before the inputs; also that of a scan."""
    for name in ("jaxpr", "call_jaxpr"):
        if isinstance(inner := step.params.get(name), ClosedJaxpr):
            return inner.jaxpr, inner.consts
        if isinstance(inner, Jaxpr):
            return inner, ()
    return None


def scan_sizes(step: JaxprEqn) -> tuple[int, int]:
    """How many inputs of a scan are the same at every turn, and how many are carried from turn to turn.

    What is stacked has one axis less inside. (JAX has names for these numbers, others in each release.)
    """
    inner: ClosedJaxpr = step.params["jaxpr"]
    carried = sum(_alike(pair) for pair in zip(step.outvars, inner.jaxpr.outvars, strict=True))
    whole = sum(_alike(pair) for pair in zip(step.invars, inner.jaxpr.invars, strict=True))
    return whole - carried, carried


def _alike(pair: tuple[Any, Any]) -> bool:
    return pair[0].aval.shape == pair[1].aval.shape
