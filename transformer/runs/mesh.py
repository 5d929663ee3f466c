"""How devices share the work of a run, which changes its numbers by rounding only.

Of validation losses that is so up to as many devices as a held-out batch has rows, 32 of a text and 64 or 128 of other
data. For twice as many or more, several batches are one, in which other tokens or patches are hidden.
"""

from dataclasses import dataclass
from typing import Literal

from transformer.core.changes import Config
from transformer.core.errors import ConfigError
from transformer.core.values import Variant

Axis = Literal["data", "model"]


@dataclass(frozen=True)
class Shard(Variant):
    """Which axes of parameters are cut, by path: `shard('*query.kernel', axes=(None, 'model'))`."""

    pattern: str = "*"
    """Pattern of dotted paths, with `*` for anything."""
    axes: tuple[Axis | None, ...] = ()
    """Mesh axes over which the last axes of the array are cut, None for one that is not; earlier axes are whole."""


@dataclass(frozen=True, kw_only=True)
class MeshConfig(Config):
    """Devices as replica × data × context × model."""

    replica: int | None = None
    """Groups of devices among which replicas are divided; None: as many as divide them evenly."""
    data: int | None = None
    """Devices among which a batch is divided; None: as many of the rest as divide it evenly, of a CPU one for a model
    of more than 5 million parameters."""
    context: int = 1
    """Devices among which the tokens of each sequence are divided; each reads the keys and values of all."""
    model: int = 1
    """Devices among which each layer is divided: heads, feed-forward features, experts and the vocabulary."""
    fully_sharded: bool = False
    """Whether parameters and optimizer state are cut over `data` too, and gathered where they are needed."""
    rounded: bool = False
    """Whether kernels are gathered, and their gradients summed, in the model's dtype and not in float32, in which they
    and their sums over pieces stay: half the bytes pass. Only where parameters are cut (`fully_sharded`)."""
    rules: tuple[Shard, ...] = ()
    """Rules tried before the built-in tables; the first match wins."""

    def __post_init__(self):
        for name in ("replica", "data", "context", "model"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"mesh.{name}: {value} is not a positive number")
        if self.rounded and not self.fully_sharded:
            raise ConfigError("mesh.rounded: no kernel is gathered without mesh.fully_sharded")


@dataclass(frozen=True, kw_only=True)
class HostsConfig:
    """The processes of one run; by default this one alone."""

    launcher: bool = False
    """Whether to find the other processes through Slurm, Open MPI, Kubernetes or a TPU's environment."""
    address: str | None = None
    """host:port of the first process, without a launcher; it listens there alone, and asks for no password."""
    count: int | None = None
    """Number of processes."""
    index: int | None = None
    """Number of this process, from 0."""
    patience: int = 300
    """Seconds without a step, or without a sign of another process, after which this process ends."""

    def __post_init__(self):
        given = [value is not None for value in (self.address, self.count, self.index)]
        if self.launcher and any(given):
            raise ConfigError("hosts: give either --hosts.launcher or address, count and index")
        if any(given) and not all(given):
            raise ConfigError("hosts: address, count and index belong together")
        if self.address is not None and not _is_address(self.address):
            raise ConfigError(f"hosts.address: {self.address!r} is not host:port")
        if self.count is not None and self.index is not None and not 0 <= self.index < self.count:
            raise ConfigError(f"hosts.index: {self.index} is not in [0, {self.count})")
        if self.patience < 1:
            raise ConfigError(f"hosts.patience: {self.patience} is not a positive number of seconds")

    @property
    def several(self) -> bool:
        """Whether the run has other processes."""
        return self.launcher or self.count is not None


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 2**16


ALONE = HostsConfig()


AUTOMATIC = MeshConfig()
"""Divides replicas over the devices, then each batch over the devices that are left (`MeshConfig.data`)."""
ONE_DEVICE = MeshConfig(replica=1, data=1, model=1)
"""A mesh of a single device."""
