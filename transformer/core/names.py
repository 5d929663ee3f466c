"""Names of activations: marks in a traced program, which cost nothing in the compiled one.

`transformer.analysis.activations` reads and changes what is marked.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
from jax.ad_checkpoint import checkpoint_name

_SCOPE: ContextVar[tuple[str, ...]] = ContextVar("scope", default=())


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Prefixes every name inside with this one and a dot, and the operations in a profile with this one."""
    token = _SCOPE.set((*_SCOPE.get(), name))
    try:
        with jax.named_scope(name):
            yield
    finally:
        _SCOPE.reset(token)


def named(x: jax.Array, name: str) -> jax.Array:
    """`x`, marked as the activation of that name in the scopes around it."""
    return checkpoint_name(x, ".".join((*_SCOPE.get(), name)))
