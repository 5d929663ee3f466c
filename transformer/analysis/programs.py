"""The parts of a traced program, for code that evaluates it step by step."""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def called(step: JaxprEqn) -> tuple[Jaxpr, Sequence[Any]] | None:
    """(program that a step calls, its constants, which precede the inputs), also for a scan; None for other steps."""
    for name in ("jaxpr", "call_jaxpr"):
        if isinstance(inner := step.params.get(name), ClosedJaxpr):
            return inner.jaxpr, inner.consts
        if isinstance(inner, Jaxpr):
            return inner, ()
    return None


def scan_sizes(step: JaxprEqn) -> tuple[int, int]:
    """(number of inputs of a scan that are the same at every step, number that are carried from step to step).

    The other inputs are stacked and have one axis less inside. (JAX's names for these numbers change by release.)
    """
    inner: ClosedJaxpr = step.params["jaxpr"]
    carried = sum(_alike(pair) for pair in zip(step.outvars, inner.jaxpr.outvars, strict=True))
    whole = sum(_alike(pair) for pair in zip(step.invars, inner.jaxpr.invars, strict=True))
    return whole - carried, carried


def _alike(pair: tuple[Any, Any]) -> bool:
    return pair[0].aval.shape == pair[1].aval.shape
