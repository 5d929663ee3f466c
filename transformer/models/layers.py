"""How the layers are run: the same numbers at another cost."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from transformer.core.values import Variant

Remat = Literal["none", "dots", "full"]
"""What the backward pass computes again: nothing, all but the matrix products, or everything."""


_POLICIES = {"dots": jax.checkpoint_policies.dots_saveable, "full": None}


def _rematerialize(body, remat: Remat, **kwargs):
    return body if remat == "none" else jax.checkpoint(body, policy=_POLICIES[remat], **kwargs)


Body = Callable[[Any, Any], tuple[Any, Any]]


class Layers(Variant, abc.ABC):
    """How a stack of equal layers is run."""

    @abc.abstractmethod
    def __call__(self, body: Body, x: Any, stacked: Any, num_layers: int) -> tuple[Any, Any]:
        """x, kept = body(x, layer) for each slice `layer` of the leading axis of the arrays in `stacked`.

        The last x, and what was kept of all layers, stacked.
        """


@dataclass(frozen=True)
class Unrolled(Layers):
    """A Python loop: the fastest up to about 8 layers, compile time grows with depth."""

    remat: Remat = "none"

    def __call__(self, body, x, stacked, num_layers):
        body = _rematerialize(body, self.remat)
        # lax.split transposes to one concatenation; indexing would pad every layer's gradient.
        leaves, treedef = jax.tree.flatten(stacked)
        columns = [[lax.squeeze(s, (0,)) for s in lax.split(leaf, (1,) * num_layers)] for leaf in leaves]
        kept = []
        for layer in zip(*columns, strict=True):
            x, own = body(x, jax.tree.unflatten(treedef, layer))
            kept.append(own)
        return x, jax.tree.map(lambda *layers: jnp.stack(layers), *kept)


@dataclass(frozen=True)
class Scanned(Layers):
    """`lax.scan`: compile time does not depend on depth."""

    remat: Remat = "none"

    def __call__(self, body, x, stacked, num_layers):
        body = _rematerialize(body, self.remat, prevent_cse=False)
        return lax.scan(body, x, stacked, length=num_layers)
