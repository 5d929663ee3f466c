"""The walk of a token: which files a call visits, and how often it changes folders.

python -m transformer.testing.walk
"""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.activations.activation import GLU, SiLU
from transformer.core.modules import split
from transformer.core.values import Choices
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Mask
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build
from transformer.models.config import ModelConfig
from transformer.norms.norm import RMSNorm
from transformer.objectives.objective import NextToken
from transformer.positions.rotary import RoPE

ROOT = Path(__file__).parents[1]
PLAIN = ModelConfig(vocab_size=65, num_layers=1)
MODELS = {
    "default": PLAIN,
    "modern": PLAIN.replace(
        norm=RMSNorm(),
        position=RoPE(),
        mixer=Attention(num_heads=4, num_kv_heads=2),
        feed_forward=FeedForward(activation=GLU(gate=SiLU())),
    ),
}
"""The models that are walked through, of one layer."""


class Walk(NamedTuple):
    """The Python calls inside of the package during a call."""

    files: tuple[str, ...]
    """The file of each, in their order."""

    @property
    def visited(self) -> list[str]:
        """The different files, in the order of their first visit."""
        return list(dict.fromkeys(self.files))

    @property
    def changes(self) -> int:
        """How often a call is in another folder than the one before it."""
        return sum(Path(left).parent != Path(right).parent for left, right in pairwise(self.files))


def walk(call: Callable[[], Any]) -> Walk:
    """The walk of a call, which is made once before it is watched, so that everything is loaded.

    The making of a value, `Choices.__call__` or that of a mask, is no step of it.
    """
    call()
    files: list[str] = []
    made = (Choices.__call__.__code__, Mask.__new__.__code__)

    def watch(frame, event: str, _) -> None:
        if (
            event == "call"
            and frame.f_code not in made
            and (path := Path(frame.f_code.co_filename)).is_relative_to(ROOT)
        ):
            files.append(str(path.relative_to(ROOT)))

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Walk(tuple(file for file in files if file != str(Path(__file__).relative_to(ROOT))))


def walks(config: ModelConfig) -> dict[str, Walk]:
    """The walks of building a model, and from its tokens to its loss."""
    params, apply = split(build(config, key=jax.random.key(0)))
    batch, objective = {"tokens": jnp.zeros((2, 9), jnp.int32)}, NextToken()
    return {
        "building": walk(lambda: build(config, key=jax.random.key(0))),
        "tokens to loss": walk(lambda: objective(apply, params, batch, None)),
    }


def main() -> None:
    for name, config in MODELS.items():
        for what, found in walks(config).items():
            print(f"{name}, {what}: {len(found.visited)} files, {found.changes} changes of folder")
            print(*(f"    {file}" for file in found.visited), sep="\n")


if __name__ == "__main__":
    main()
