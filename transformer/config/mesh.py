"""How devices share the work of a run; no number depends on it but by rounding."""

from dataclasses import dataclass
from typing import Literal

from transformer.config.variant import ConfigError, Variant

Axis = Literal["data", "model"]


@dataclass(frozen=True)
class Shard(Variant):
    """A rule by path: which axes of a parameter are cut: `shard('*query.kernel', axes=(None, 'model'))`."""

    pattern: str = "*"
    """Of dotted paths, `*` for anything."""
    axes: tuple[Axis | None, ...] = ()
    """What the last axes of the array are cut over; none: not cut. Axes before them are whole."""


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices as replica × data × model."""

    replica: int | None = None
    """Groups of devices that share out the replicas; none: as many as divide them evenly."""
    data: int | None = None
    """Devices that share out a batch; none: as many of the rest as divide it evenly."""
    model: int = 1
    """Devices that share out each layer: heads, feed-forward features, experts and the vocabulary."""
    fully_sharded: bool = False
    """Whether parameters and the state of the optimizer are cut over `data` too, and put together where needed."""
    rules: tuple[Shard, ...] = ()
    """Rules before those of the tables; the first that fits a path has it."""

    def __post_init__(self):
        for name in ("replica", "data", "model"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"mesh.{name}: {value} is not a positive number")


@dataclass(frozen=True, kw_only=True)
class HostsConfig:
    """The processes of one run; nothing given: this one alone."""

    launcher: bool = False
    """Whether Slurm, Open MPI, Kubernetes or a TPU's environment says who the others are."""
    address: str | None = None
    """host:port of the first process, where no launcher says it."""
    count: int | None = None
    """Number of processes."""
    index: int | None = None
    """Number of this one, from 0."""
    patience: int = 300
    """Seconds without a step, or without a sign of another process, after which this one ends."""

    def __post_init__(self):
        given = [value is not None for value in (self.address, self.count, self.index)]
        if self.launcher and any(given):
            raise ConfigError("hosts: give either --hosts.launcher or address, count and index")
        if any(given) and not all(given):
            raise ConfigError("hosts: address, count and index belong together")
        if self.count is not None and self.index is not None and not 0 <= self.index < self.count:
            raise ConfigError(f"hosts.index: {self.index} is not in [0, {self.count})")
        if self.patience < 1:
            raise ConfigError(f"hosts.patience: {self.patience} is not a positive number of seconds")

    @property
    def several(self) -> bool:
        """Whether there are others."""
        return self.launcher or self.count is not None


ALONE = HostsConfig()

AUTOMATIC = MeshConfig()
"""Replicas over the devices, then each batch over those that are left."""
