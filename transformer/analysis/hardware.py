"""Devices to plan for: what their vendors say of them, and compilers of those that are not here."""

import functools
import importlib.util
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax.experimental import topologies

from transformer.core.values import ConfigError, nearest


@dataclass(frozen=True)
class Hardware:
    """One device, as its vendor specifies it."""

    flops: float
    """Operations per second of dense bfloat16 products."""
    memory: float
    """Memory in bytes."""
    bandwidth: float
    """Bytes per second between memory and processor."""
    link: float
    """Bytes per second to other devices, in one direction."""
    clock: float | None = None
    """Cycles per second, where a compiler counts cycles."""


HARDWARE: Mapping[str, Hardware] = {
    "h100": Hardware(989e12, 80e9, 3.35e12, 450e9),  # SXM, NVLink 4
    "a100": Hardware(312e12, 80e9, 2.04e12, 300e9),  # SXM, NVLink 3
    # Links both ways together are 400 Gbit/s for each of 4 (v5e), 800 for 6 (v5p), 896 for 4 (v6e). The clock is that
    # at which the matrix units, of 128 x 128 or, in v6e, 256 x 256, have the rate.
    "v5e": Hardware(197e12, 16e9, 819e9, 100e9, 1.5e9),
    "v5p": Hardware(459e12, 95e9, 2765e9, 300e9, 1.75e9),
    "v6e": Hardware(918e12, 32e9, 1640e9, 224e9, 1.75e9),
    # A core of the machine of the measurements in the documentation: half of its float32 rate, and a copy in memory.
    "cpu": Hardware(105e9, 8e9, 10e9, 5e9),
}
TPUS = ("v5e", "v5p", "v6e")


class Topology(NamedTuple):
    """Devices that are connected: `v5p:4x4x4` are 64."""

    name: str
    kind: str
    size: int

    @classmethod
    def named(cls, name: str) -> "Topology":
        """Raises ConfigError: the name is not KIND:AxB or KIND:AxBxC of a known kind."""
        kind, _, shape = name.partition(":")
        if kind not in HARDWARE:
            raise ConfigError(f"topology: unknown hardware {kind!r}{nearest(kind, HARDWARE)}")
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape):
            raise ConfigError(f"topology: {name!r} is not of the form {kind}:2x4")
        return cls(name, kind, math.prod(map(int, shape.split("x"))))

    @property
    def hardware(self) -> Hardware:
        return HARDWARE[self.kind]

    @property
    def platform(self) -> str | None:
        """What a step is traced for; None: as for the devices at hand, because cuDNN's kernels need a GPU there."""
        return "tpu" if self.kind in TPUS else None

    @property
    def compiles(self) -> bool:
        """Whether its compiler is installed (extra `tpu`)."""
        return self.kind in TPUS and importlib.util.find_spec("libtpu") is not None

    def devices(self) -> list[Any]:
        """The devices, which programs can be compiled for and which run none.

        Raises:
          ConfigError: the compiler knows no such topology.
        """
        return list(_devices(self.name))


@functools.cache
def _devices(name: str) -> tuple[Any, ...]:
    # What the compiler would otherwise ask of a machine with TPUs.
    alone = {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}
    for variable, value in (alone | {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}).items():
        os.environ.setdefault(variable, value)
    try:
        return tuple(topologies.get_topology_desc(name, "tpu").devices)
    except Exception as error:
        raise ConfigError(f"topology: {name}: {str(error).splitlines()[0]}") from error
