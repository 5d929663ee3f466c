"""Devices to plan for: what their vendors say of them, and compilers of those that are not here."""

import functools
import importlib.util
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from transformer.core.arrays import has_cuda
from transformer.core.errors import ConfigError, nearest


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
    # Links: 4 of 400 Gbit/s each way (v5e), 6 of 800 (v5p), 4 of 800 (v6e). The clock is that at which the matrix
    # units, of 128 x 128 or, in v6e, 256 x 256, have the rate.
    "v5e": Hardware(197e12, 16e9, 819e9, 200e9, 1.5e9),
    "v5p": Hardware(459e12, 95e9, 2765e9, 600e9, 1.75e9),
    "v6e": Hardware(918e12, 32e9, 1640e9, 400e9, 1.75e9),
    # A core of the machine of the measurements in the documentation: half of its float32 rate, and a copy in memory.
    "cpu": Hardware(105e9, 8e9, 10e9, 5e9),
}


class Chip(NamedTuple):
    """What a compiler asks of a GPU beside its rates."""

    capability: str
    """In the words of XLA."""
    cores: int
    """Streaming multiprocessors."""
    lanes: int
    """Float32 units of each."""
    shared: int
    """Bytes of shared memory of each; a block has 1 KiB less."""
    cache: int
    """Bytes of the cache of all."""
    clock: float
    """GHz."""


GPUS: Mapping[str, Chip] = {
    "h100": Chip("major: 9 feature_extension: ACCELERATED_FEATURES", 132, 128, 228 * 2**10, 50 * 2**20, 1.98),
    "a100": Chip("major: 8", 108, 64, 164 * 2**10, 40 * 2**20, 1.41),
}


class Topology(NamedTuple):
    """Devices that are connected: `v5p:4x4x4` are 64."""

    name: str
    kind: str
    size: int

    @classmethod
    def named(cls, name: str) -> "Topology":
        """Raises ConfigError: the name is not KIND:AxB or KIND:AxBxC of a known kind."""
        kind, _, shape = name.partition(":")
        if one := re.fullmatch(rf"({'|'.join(GPUS)})[-x]?([1-9]\d*)", kind):
            raise ConfigError(f"topology: {name!r} is not of the form KIND:SHAPE; did you mean {one[1]}:{one[2]}?")
        if kind not in HARDWARE:
            raise ConfigError(f"topology: unknown hardware {kind!r}{nearest(kind, HARDWARE)}")
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape):
            raise ConfigError(f"topology: {name!r} is not of the form {kind}:2x4")
        return cls(name, kind, math.prod(map(int, shape.split("x"))))

    @property
    def hardware(self) -> Hardware:
        return HARDWARE[self.kind]

    @property
    def platform(self) -> str:
        """What a step is traced for: tpu, cuda or cpu."""
        return "cuda" if self.kind in GPUS else "cpu" if self.kind == "cpu" else "tpu"

    @property
    def compiles(self) -> bool:
        """Whether its compiler is installed (extras `tpu` and `cuda`)."""
        return {"cpu": True, "cuda": has_cuda(), "tpu": importlib.util.find_spec("libtpu") is not None}[self.platform]

    def devices(self) -> list[Any]:
        """The devices, which programs can be compiled for and which run none, except those of a CPU.

        Those of GPUs come in machines of the last number of the name: `h100:4x8` are four of eight.

        Raises:
          ConfigError: the compiler knows no such topology.
        """
        if self.platform == "cpu":
            return jax.devices("cpu")[: self.size]
        return list(_devices(self))


@functools.cache
def _devices(topology: Topology) -> tuple[Any, ...]:
    try:
        if topology.platform == "tpu":
            return _tpus(topology.name)
        *_, of_machine = topology.name.replace(":", "x").split("x")
        shape = f"{topology.size // int(of_machine)}x1x{of_machine}"
        described = topologies.get_topology_desc("", "cuda", target_config=_target(topology.kind), topology=shape)
        return tuple(described.devices)
    except Exception as error:
        raise ConfigError(f"topology: {topology.name}: {str(error).splitlines()[0]}") from error


def _tpus(name: str) -> tuple[Any, ...]:
    # What the compiler would otherwise ask of a machine with TPUs.
    alone = {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}
    for variable, value in (alone | {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}).items():
        os.environ.setdefault(variable, value)
    return tuple(topologies.get_topology_desc(name, "tpu").devices)


def _target(kind: str) -> str:
    """XLA's description of a GPU, a text of its `GpuTargetConfigProto`; limits without a name are those of all."""
    chip, hardware = GPUS[kind], HARDWARE[kind]
    threads = "threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048"
    blocks = "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535"
    in_block = "thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64"
    registers = "registers_per_core_limit: 65536 registers_per_block_limit: 65536"
    return f"""
        platform_name: "CUDA" device_description_str: "{kind}"
        gpu_device_info {{
            cuda_compute_capability {{ {chip.capability} }}
            core_count: {chip.cores} fpus_per_core: {chip.lanes} clock_rate_ghz: {chip.clock}
            {threads} {in_block} {blocks} {registers}
            shared_memory_per_block: {48 * 2**10} shared_memory_per_block_optin: {chip.shared - 2**10}
            shared_memory_per_core: {chip.shared} l2_cache_size: {chip.cache} device_address_bits: 64
            device_memory_size: {hardware.memory:.0f} memory_bandwidth: {hardware.bandwidth:.0f}
        }}
    """
