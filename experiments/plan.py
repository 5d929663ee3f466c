"""Predicts what a run needs of its devices, before there are any.

    python -m transformer.analysis.plan gpt2-124m --topology v5e:2x4 --mesh.data 8 --accumulation 4 --fused
    python -m transformer.analysis.plan llama-8b --topology v5p:4x4x4 --search
    python -m transformer.analysis.plan llama-70b --mesh.data 64 --mesh.model 8 --mesh.fully-sharded

The first predicts memory, operations and time of a step, and compiles the program for those devices where their
compiler is installed (`pip install -e '.[tpu]'`, or `'.[cuda]'`), to compare: nothing is run, and no array is made. The
second predicts every mesh, rematerialization and number of pieces, and says which fit, the fastest first, and what to
type for it. The third compiles for as many simulated devices of this machine. What is printed is in `plan.json`, too.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from transformer.analysis.hardware import HARDWARE, Hardware, Topology
from transformer.analysis.needs import Compiled, Found, Plan, compile_step, fits, plan, remat_of, search
from transformer.core.files import write_durably
from transformer.core.values import ConfigError
from transformer.mixers.attention.backends import Fused
from transformer.models.stack import Scanned
from transformer.objectives.chunked import ChunkedNextToken
from transformer.runs.large_presets import LARGE_PRESETS
from transformer.runs.mesh import MeshConfig
from transformer.runs.presets import PRESETS, preset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=[*PRESETS, *LARGE_PRESETS])
    for name in ("replica", "data", "context", "model"):
        parser.add_argument(f"--mesh.{name}", dest=name, type=int, default=1)
    parser.add_argument("--mesh.fully-sharded", dest="fully_sharded", action="store_true")
    parser.add_argument("--mesh.rounded", dest="rounded", action="store_true")
    parser.add_argument("--topology", help="devices that are connected: v5e:2x4, v5p:4x4x4, h100:8")
    parser.add_argument("--hardware", choices=HARDWARE, default="h100", help="of devices without a topology")
    parser.add_argument("--search", action="store_true", help="every mesh, rematerialization and number of pieces")
    parser.add_argument("--max-length", type=int, help="tokens of a sequence; by default as the preset")
    parser.add_argument("--batch-size", type=int, help="sequences; by default as the preset")
    parser.add_argument("--accumulation", type=int, help="pieces of a batch; by default of a sequence a device")
    parser.add_argument("--remat", choices=("none", "dots", "full"), help="by default as the preset")
    parser.add_argument("--fused", action="store_true", help="attention by the kernel of the device")
    parser.add_argument("--chunk", type=int, help="tokens of a sequence whose logits are there at once; by default all")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="compute in it; by default as the preset")
    parser.add_argument("--vocab-size", type=int, default=65, help="of presets that take it from their data")
    parser.add_argument("--out", type=Path, default=Path("plan.json"), help="file of the figures")
    try:
        _main(parser.parse_args())
    except ConfigError as error:
        sys.exit(f"error: {error}")


def _main(a: argparse.Namespace) -> None:
    config = preset(a.preset)
    config = config.replace({"model.vocab_size": config.model.vocab_size or a.vocab_size})
    given = {"model.max_length": a.max_length, "batch_size": a.batch_size}
    config = config.replace({name: value for name, value in given.items() if value is not None})
    config = config if a.dtype is None else config.replace({"model.dtype": a.dtype})
    config = config if a.remat is None else config.replace({"model.layers": Scanned(remat=a.remat)})
    config = config.replace({"model.mixer.backend": Fused()}) if a.fused else config
    config = config if a.chunk is None else config.replace(objective=ChunkedNextToken(chunk=a.chunk))
    sizes = {"replica": a.replica, "data": a.data, "context": a.context, "model": a.model}
    mesh = MeshConfig(**sizes, fully_sharded=a.fully_sharded, rounded=a.rounded)
    topology = None if a.topology is None else Topology.named(a.topology)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", topology.size if topology else math.prod(sizes.values()))
    there = topology is not None and topology.compiles
    devices = topology.devices() if topology and there else jax.devices()
    hardware = topology.hardware if topology else HARDWARE[a.hardware]
    if topology and not there:
        print(f"no compiler for {topology.name} is installed (extra {topology.platform}): by formula alone")
    platform = topology.platform if topology else None
    if a.search:
        found = search(config, hardware, devices, platform, watch=_watch)
        _show_search(found[:15], hardware, len(devices))
        print(f"the first is\n{training(a, found[0])}" if fits(found[0].plan, hardware) else "none of them fits")
        figures: Any = [_figures(one, hardware) for one in found]
    else:
        pieces = a.accumulation or max(config.batch_size // a.data, 1)
        config = config.replace(accumulation=pieces)
        needs, program = plan(config, mesh, devices, platform)
        one = Found(mesh, remat_of(config), pieces, needs)
        compiled = compile_step(config, program) if topology is None or there else None
        _show_one(one, compiled, hardware, topology.name if topology else a.hardware)
        figures = _figures(one, hardware, compiled)
    write_durably(a.out, json.dumps(figures, indent=2) + "\n")


def _watch(tried: list[Any]) -> Iterable[Any]:
    """A bar on standard error."""
    return track(tried, "meshes and rematerialization", console=Console(stderr=True))


def _show_search(found: list[Found], hardware: Hardware, devices: int) -> None:
    columns = ["data × model", "remat", "pieces", "state", "grads", "kept", "GB", "fits", "s", "MFU"]
    table = Table(
        *(Column(name, no_wrap=True) for name in columns),
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
        title=f"a step on {devices} devices of {hardware.memory / 1e9:.0f} GB, the best first",
    )
    for one in found:
        needs = one.plan
        state = needs.parameter_bytes + needs.optimizer_bytes
        parts = (state, needs.gradient_bytes, needs.activation_bytes, needs.training_bytes)
        table.add_row(
            f"{one.mesh.data} × {one.mesh.model}" + " sharded" * one.mesh.fully_sharded,
            one.remat,
            str(one.accumulation),
            *(f"{n / 1e9:.1f}" for n in parts),
            "yes" if fits(needs, hardware) else "no",
            f"{needs.seconds(hardware):.2f}",
            f"{needs.utilization(hardware, needs.seconds(hardware)):.0%}",
        )
    Console().print(table)


def training(a: argparse.Namespace, one: Found) -> str:
    """The command that trains so, in the words of `transformer train`."""
    flags = {
        "mesh.data": one.mesh.data,
        "mesh.model": one.mesh.model if one.mesh.model != 1 else None,
        "mesh.fully-sharded": "" if one.mesh.fully_sharded else None,
        "accumulation": one.accumulation,
        "model.layers": f"'scanned(remat={one.remat})'",
        "model.mixer.backend": "fused" if a.fused else None,
        "objective": f"'chunked_next_token(chunk={a.chunk})'" if a.chunk else None,
        "model.max-length": a.max_length,
        "batch-size": a.batch_size,
        "model.dtype": a.dtype,
    }
    given = [f"--{name} {value}".strip() for name, value in flags.items() if value is not None]
    return " ".join(["transformer train", a.preset, *given, "--data.path TEXT"])


def _show_one(one: Found, compiled: Compiled | None, hardware: Hardware, name: str) -> None:
    title = f"{_text(one.mesh)}, batch in {one.accumulation}, remat {one.remat}"
    table = Table("", "predicted", "compiled", title=title)
    for label, form, predicted, read in _rows(one.plan, compiled, hardware, name):
        table.add_row(label, *("" if value is None else form.format(value) for value in (predicted, read)))
    Console().print(table)


Row = tuple[str, str, Any, Any]
"""What it is, how it is printed, the prediction, and what was compiled; None for what is not known."""


def _rows(needs: Plan, compiled: Compiled | None, hardware: Hardware, name: str) -> list[Row]:
    seconds, read = needs.seconds(hardware), None if compiled is None else compiled.seconds(hardware, needs.flops)
    state, rest = needs.parameter_bytes + needs.optimizer_bytes, needs.gradient_bytes + needs.activation_bytes
    done = [None] * 4
    if compiled is not None:
        done = [compiled.argument_bytes / 1e9, compiled.temporary_bytes / 1e9, compiled.work.flops / 1e12]
        done.append(compiled.received / 1e9)
    return [
        ("parameters", "{:,}", needs.parameters, None),
        ("state, GB a device", "{:.2f}", state / 1e9, done[0]),
        ("the rest, GB a device", "{:.2f}", rest / 1e9, done[1]),
        ("operations, TFLOP a device", "{:.2f}", needs.flops / 1e12, done[2]),
        ("received, GB a device", "{:.2f}", needs.received / 1e9, done[3]),
        (f"a step on {name}, s", "{:.3f}", seconds, read),
        ("MFU", "{:.0%}", needs.utilization(hardware, seconds), read and needs.utilization(hardware, read)),
        ("cache of a sequence, GB a device", "{:.3f}", needs.cache_bytes / 1e9, None),
        (f"fits {hardware.memory / 1e9:.0f} GB", "{}", "yes" if fits(needs, hardware) else "no", None),
    ]


def _figures(one: Found, hardware: Hardware, compiled: Compiled | None = None) -> dict[str, Any]:
    """What plan.json says of one way to train."""
    read = None
    if compiled is not None:
        by_kind = {f"{how.kind} of {how.devices}": size for how, size in compiled.work.collective_bytes.items()}
        numbers = {"argument_bytes": compiled.argument_bytes, "temporary_bytes": compiled.temporary_bytes}
        read = numbers | {"flops": compiled.work.flops, "cycles": compiled.work.cycles, "collective_bytes": by_kind}
    return {
        "mesh": dataclasses.asdict(one.mesh) | {"rules": []},
        "remat": one.remat,
        "accumulation": one.accumulation,
        "predicted": one.plan._asdict() | {"seconds": one.plan.seconds(hardware), "fits": fits(one.plan, hardware)},
        "compiled": read,
    }


def _text(mesh: MeshConfig) -> str:
    return f"{mesh.replica} × {mesh.data} × {mesh.context} × {mesh.model}" + " sharded" * mesh.fully_sharded


if __name__ == "__main__":
    main()
