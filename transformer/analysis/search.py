"""The search for how a run is best divided among devices, by what is predicted."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, get_args

from transformer.analysis.hardware import Hardware
from transformer.analysis.plan import Plan, plan
from transformer.core.errors import ConfigError
from transformer.models.stack import Layers, Remat
from transformer.runs.config import RunConfig
from transformer.runs.mesh import ONE_DEVICE, MeshConfig


class Found(NamedTuple):
    """A way to train that was planned."""

    mesh: MeshConfig
    layers: Layers
    accumulation: int
    plan: Plan


def search(
    config: RunConfig,
    hardware: Hardware,
    devices: list[Any],
    platform: str | None = None,
    watch: Callable[[list[Any]], Iterable[Any]] = iter,
    like: MeshConfig = ONE_DEVICE,
) -> list[Found]:
    """Every mesh, rematerialization and number of pieces: those that fit first, the fastest of them first.

    `watch` goes through what is tried, and may show how far that is; `like` has what all meshes have.

    Raises:
      ConfigError: no mesh divides heads, batch and widths.
    """
    found, refused = [], None
    ways = [dataclasses.replace(config.model.layers, remat=remat) for remat in get_args(Remat)]
    for mesh, layers in watch(list(itertools.product(meshes(len(devices), like), ways))):
        own = config.replace({"model.layers": layers, "accumulation": 1})
        for pieces in _halves(config.batch_size // (mesh.data or 1)):
            try:
                planned, _ = plan(own.replace(accumulation=pieces), mesh, devices, platform)
            except ConfigError as error:
                refused = error
                break
            found.append(Found(mesh, layers, pieces, planned))
    if not found and refused is not None:
        raise refused
    return sorted(found, key=lambda one: (not fits(one.plan, hardware), one.plan.seconds(hardware)))


def meshes(devices: int, like: MeshConfig = ONE_DEVICE) -> list[MeshConfig]:
    """Every division of the devices into data and model, with parameters cut over data or not; the rest is as given.

    Raises:
      ConfigError: the devices of a sequence do not divide them.
    """
    if devices % like.context:
        raise ConfigError(f"mesh.context: {devices} devices cannot be divided by {like.context}")
    shared = devices // like.context
    sizes = [n for n in range(1, shared + 1) if shared % n == 0]
    return [
        dataclasses.replace(
            like, replica=1, data=shared // model, model=model, fully_sharded=sharded, rounded=like.rounded and sharded
        )
        for model, sharded in itertools.product(sizes, (False, True))
        if not sharded or shared > model
    ]


def fits(needs: Plan, hardware: Hardware) -> bool:
    """Whether a fifth of the memory is left for what is not predicted."""
    return needs.training_bytes < 0.8 * hardware.memory


def _halves(number: int) -> list[int]:
    """1, 2, 4, … as far as they divide it."""
    return [2**i for i in range(number.bit_length()) if number % 2**i == 0]
