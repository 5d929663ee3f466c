"""Predicts what a run needs of its devices, before there are any.

    python -m transformer.analysis.plan llama-70b --mesh.data 64 --mesh.model 8 --mesh.fully-sharded
    python -m transformer.analysis.plan llama-8b --devices 64 --hardware h100

The first predicts memory, operations and time of a step, and compiles the program for as many simulated
devices to compare with XLA's figures; nothing is run, and no array is made. The second predicts every
mesh of that many devices and says which ones fit, without compiling.
"""

import argparse
import dataclasses
import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from transformer.analysis.counts import cache_bytes, product_flops
from transformer.analysis.hlo import Work, work_of
from transformer.core import modules as pure
from transformer.core.arrays import DATA, MODEL
from transformer.core.values import ConfigError
from transformer.models.build import pure_model
from transformer.runs.config import Replica, RunConfig
from transformer.runs.large_presets import LARGE_PRESETS
from transformer.runs.mesh import MeshConfig
from transformer.runs.presets import PRESETS, preset
from transformer.training.program import Program, make_program


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


HARDWARE: Mapping[str, Hardware] = {
    "h100": Hardware(989e12, 80e9, 3.35e12, 450e9),  # SXM, NVLink 4
    "a100": Hardware(312e12, 80e9, 2.04e12, 300e9),  # SXM, NVLink 3
    "v5e": Hardware(197e12, 16e9, 819e9, 100e9),  # four links of 400 Gbit/s both ways together
    "v5p": Hardware(459e12, 95e9, 2765e9, 300e9),
    # A core of the machine of the README's measurements: half of its float32 rate, and a copy in memory.
    "cpu": Hardware(105e9, 8e9, 10e9, 5e9),
}


class Plan(NamedTuple):
    """The needs of one device; bytes are those at the end of the forward pass, when most are in use."""

    parameters: int
    """Number of parameters of the model, over all devices."""
    parameter_bytes: int
    optimizer_bytes: int
    gradient_bytes: int
    activation_bytes: int
    """What the forward pass keeps for the backward pass, under the rematerialization policy."""
    cache_bytes: int
    """Cache of one sequence of full length in decoding, which is not part of training."""
    flops: float
    """Operations of the matrix products of a step, recomputed ones included."""

    @property
    def training_bytes(self) -> int:
        return self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes + self.activation_bytes

    def seconds(self, hardware: Hardware, collective_bytes: float = 0.0) -> float:
        """Seconds of a step on the roofline: the slower of computing and reading, plus the transfers between devices.

        The state is read and written once, parameters are read three times more, and activations twice.
        """
        state = self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes
        moved = 2 * state + 3 * self.parameter_bytes + 2 * self.activation_bytes
        return max(self.flops / hardware.flops, moved / hardware.bandwidth) + collective_bytes / hardware.link


def predict(config: RunConfig, program: Program) -> Plan:
    """The plan of a run, from shapes and the traced step alone."""
    state, shape = program.abstract_state, program.mesh.shape
    params, apply = pure_model(config.model)
    rows = config.batch_size // config.accumulation // shape[DATA]
    per_sequence, flops = _traced(config, apply, params)
    whole, cut = per_sequence
    own = _bytes_here(state.params)
    return Plan(
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)),
        parameter_bytes=own,
        optimizer_bytes=_bytes_here(state.opt_state),
        gradient_bytes=own * (2 if config.accumulation > 1 else 1),
        activation_bytes=rows * (whole + cut // shape[MODEL]),
        cache_bytes=cache_bytes(config.model) // shape[MODEL] if config.model.causal else 0,
        flops=flops * config.batch_size / (shape[DATA] * shape[MODEL]),
    )


def _bytes_here(tree: Any) -> int:
    """Bytes on one device of a tree of shapes with shardings."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


def _traced(config: RunConfig, apply: pure.Apply, params: pure.Params) -> tuple[tuple[int, int], float]:
    """For one sequence ((bytes of residuals as wide as the stream, bytes of others), operations of a step)."""

    def total(params, tokens):
        return config.objective(apply, params, {"tokens": tokens}, None).loss.sum()

    def residuals(size):
        tokens = jax.ShapeDtypeStruct((size, config.model.max_length + 1), jnp.int32)
        kept = jax.eval_shape(lambda p, t: jax.vjp(lambda p: total(p, t), p)[1], params, tokens)
        return jax.tree.leaves(kept), tokens

    # What grows with the batch is not a parameter.
    (one, _), (two, _) = residuals(1), residuals(2)
    growth = [
        (a.shape, (math.prod(b.shape) - math.prod(a.shape)) * a.dtype.itemsize) for a, b in zip(one, two, strict=True)
    ]
    whole = sum(size for shape, size in growth if shape and shape[-1] == config.model.d_model)
    jaxpr = jax.make_jaxpr(jax.grad(total))(params, residuals(1)[1])
    return (whole, sum(size for _, size in growth) - whole), product_flops(jaxpr.jaxpr)


class Compiled(NamedTuple):
    """XLA's figures of the compiled step for one device."""

    argument_bytes: int
    """State and batch."""
    temporary_bytes: int
    """Gradients, activations and all intermediates."""
    work: Work


def compile_step(config: RunConfig, program: Program) -> Compiled:
    """Compile one step for the devices of the program, which may be simulated; nothing is run."""
    shape = (program.abstract_state.step.shape[0], 1, config.batch_size, config.model.max_length + 1)
    batch = {"tokens": jax.ShapeDtypeStruct(shape, jnp.int32)}
    compiled = program.train.lower(program.abstract_state, batch).compile()
    memory, text = compiled.memory_analysis(), compiled.as_text()
    assert memory is not None
    assert text is not None
    return Compiled(memory.argument_size_in_bytes, memory.temp_size_in_bytes, work_of(text))


def meshes(devices: int) -> list[MeshConfig]:
    """Every division of the devices into data and model, with parameters cut over data or not."""
    sizes = [n for n in range(1, devices + 1) if devices % n == 0]
    return [
        MeshConfig(replica=1, data=devices // model, model=model, fully_sharded=sharded)
        for model, sharded in itertools.product(sizes, (False, True))
        if not sharded or devices > model
    ]


def plan(config: RunConfig, mesh: MeshConfig) -> tuple[Plan, Program]:
    """(prediction for one replica on a mesh, program to compile)."""
    one_step = dataclasses.replace(config, steps_per_dispatch=1)
    program = make_program(one_step, [Replica()], mesh)
    return predict(one_step, program), program


def largest_pieces(config: RunConfig, data: int) -> RunConfig:
    """The config with its batch in pieces of one sequence per device, where these divide it."""
    pieces = config.batch_size // data
    return config.replace(accumulation=pieces) if pieces and config.batch_size % data == 0 else config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=[*PRESETS, *LARGE_PRESETS])
    for name in ("replica", "data", "model"):
        parser.add_argument(f"--mesh.{name}", dest=name, type=int, default=1)
    parser.add_argument("--mesh.fully-sharded", dest="fully_sharded", action="store_true")
    parser.add_argument("--devices", type=int, help="predict every mesh of so many devices")
    parser.add_argument("--hardware", choices=HARDWARE, default="h100")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="compute in it; by default as the preset")
    parser.add_argument("--vocab-size", type=int, default=65, help="of presets that take it from their data")
    a = parser.parse_args()
    config = preset(a.preset)
    config = config.replace({"model.vocab_size": config.model.vocab_size or a.vocab_size})
    config = config if a.dtype is None else config.replace({"model.dtype": a.dtype})
    here = MeshConfig(replica=a.replica, data=a.data, model=a.model, fully_sharded=a.fully_sharded)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", a.devices or a.replica * a.data * a.model)
    try:
        _predict_all(config, a.devices, a.hardware) if a.devices else _predict_one(config, here, a.hardware)
    except ConfigError as error:
        sys.exit(f"error: {error}")


def _predict_all(config: RunConfig, devices: int, name: str) -> None:
    hardware = HARDWARE[name]
    columns = ["mesh", "state", "gradients", "activations", "GB in all", f"fits {hardware.memory / 1e9:.0f} GB"]
    table = Table(*columns, title=f"bytes on a device of {devices}, in GB")
    for mesh in meshes(devices):
        try:
            found, _ = plan(largest_pieces(config, mesh.data or 1), mesh)
        except ConfigError as error:
            table.add_row(_text(mesh), str(error))
            continue
        state = found.parameter_bytes + found.optimizer_bytes
        parts = (state, found.gradient_bytes, found.activation_bytes, found.training_bytes)
        table.add_row(_text(mesh), *(f"{n / 1e9:.1f}" for n in parts), str(found.training_bytes < hardware.memory))
    Console().print(table)


def _predict_one(config: RunConfig, mesh: MeshConfig, name: str) -> None:
    config = largest_pieces(config, mesh.data or 1)
    found, program = plan(config, mesh)
    compiled = compile_step(config, program)
    sent = sum(compiled.work.collective_bytes.values())
    state = found.parameter_bytes + found.optimizer_bytes
    rest = found.gradient_bytes + found.activation_bytes
    table = Table(
        "", "predicted", "compiled", title=f"{_text(mesh)}, batch {config.batch_size} in {config.accumulation}"
    )
    table.add_row("parameters", f"{found.parameters:,}", "")
    table.add_row("state, GB a device", f"{state / 1e9:.2f}", f"{compiled.argument_bytes / 1e9:.2f}")
    table.add_row("the rest, GB a device", f"{rest / 1e9:.2f}", f"{compiled.temporary_bytes / 1e9:.2f}")
    table.add_row(
        "operations of a step, TFLOP a device", f"{found.flops / 1e12:.2f}", f"{compiled.work.flops / 1e12:.2f}"
    )
    table.add_row("between devices, GB a device", "", f"{sent / 1e9:.2f}")
    table.add_row(f"a step on {name}, s", f"{found.seconds(HARDWARE[name], sent):.3f}", "")
    table.add_row("cache of a sequence, GB a device", f"{found.cache_bytes / 1e9:.3f}", "")
    table.add_row(f"fits {HARDWARE[name].memory / 1e9:.0f} GB", str(found.training_bytes < HARDWARE[name].memory), "")
    Console().print(table)


def _text(mesh: MeshConfig) -> str:
    return f"{mesh.replica} × {mesh.data} × {mesh.model}" + ", fully sharded" * mesh.fully_sharded


if __name__ == "__main__":
    main()
