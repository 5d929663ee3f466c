"""What a run needs of one device, as read from its compiled step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer.analysis.hardware import Hardware
from transformer.analysis.hlo import Collective, Work, work_of
from transformer.core.errors import ConfigError
from transformer.runs.config import RunConfig
from transformer.training.program import Program


class Compiled(NamedTuple):
    """XLA's figures of the compiled step for one device."""

    argument_bytes: int
    """State and batch."""
    temporary_bytes: int
    """Gradients, activations and all intermediates."""
    work: Work
    devices: int
    """Number of devices of the program."""

    @property
    def received(self) -> float:
        """Bytes from other devices in rings."""
        return sum(_share_received(how, self.devices) * size for how, size in self.work.collective_bytes.items())

    def seconds(self, hardware: Hardware, flops: float) -> float | None:
        """The cycles that the compiler expects, then the transfers; None where it counts none.

        What it does not see of the operations, those within kernels, is counted at the device's full rate.
        """
        if hardware.clock is None or not self.work.cycles:
            return None
        unseen = max(flops - self.work.flops, 0.0)
        return self.work.cycles / hardware.clock + unseen / hardware.flops + self.received / hardware.link


def _share_received(how: Collective, everyone: int) -> float:
    """What a device receives of the others in a ring, as a share of its result; `everyone` is all devices."""
    n = how.devices or everyone
    shares = {"all-reduce": 2 * (n - 1) / n, "reduce-scatter": n - 1, "collective-permute": 1}
    return shares.get(how.kind, (n - 1) / n)


def compile_step(config: RunConfig, program: Program) -> Compiled:
    """Compile one step for the devices of the program, which may be simulated or elsewhere; nothing is run."""
    shape = (program.abstract_state.step.shape[0], 1, config.batch_size, config.model.max_length + 1)
    batch = {"tokens": jax.ShapeDtypeStruct(shape, jnp.int32)}
    compiled = compile_lowered(program.train.lower(program.abstract_state, batch), program.mesh.devices.flat[0])
    memory, text = compiled.memory_analysis(), compiled.as_text()
    assert memory is not None
    assert text is not None
    return Compiled(memory.argument_size_in_bytes, memory.temp_size_in_bytes, work_of(text), program.mesh.size)


class TooLarge(ConfigError):
    """A program needs more memory than a device has, as its compiler says."""


def compile_lowered(lowered: jax.stages.Lowered, device: Any) -> jax.stages.Compiled:
    """The program for devices of that kind, which may be elsewhere.

    Products on GPUs are all cuBLAS's: XLA tries its own on a device, and stops where there is none to say which work.

    Raises:
      TooLarge: it does not fit.
    """
    try:
        return lowered.compile({"xla_gpu_enable_triton_gemm": False} if device.platform == "gpu" else None)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        said = str(error).partition("RESOURCE_EXHAUSTED:")[2].strip().splitlines()[0].rstrip(".")
        raise TooLarge(f"plan: it does not fit, says the compiler: {said}") from None
