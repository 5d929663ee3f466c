"""Predicts what a run needs of its devices, before there are any.

    transformer plan gpt2-124m --topology v5e:2x4 --mesh.data 8 --accumulation 4
    transformer plan llama-8b --topology v5p:4x4x4 --search
    transformer plan llama-70b --mesh.data 64 --mesh.model 8 --mesh.fully-sharded --accumulation 8
    transformer plan --from FOLDER --topology v5p:4x4x4 --search --model.max-length 8192

The first predicts memory, operations and time of a step, and compiles the program for those devices where their
compiler is installed (`pip install -e '.[tpu]'`, or `'.[cuda]'`), to compare: nothing is run, and no array is made. The
second predicts every mesh, rematerialization and number of pieces, and says which fit, the fastest first, and what to
type for it. The third compiles for as many simulated devices of this machine. The fourth is of a published model, of
which config.json is enough. What is printed is in `plan.json`, too.
"""

import dataclasses
import functools
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from experiments import cli
from experiments.finetune import FROM, HOW, asked, of_text
from experiments.sections import MODEL, Sections
from transformer import pretrained
from transformer.analysis.compiled import Compiled, TooLarge, compile_step
from transformer.analysis.hardware import HARDWARE, Hardware, Topology
from transformer.analysis.plan import Plan, plan
from transformer.analysis.search import Found, fits, search
from transformer.core.changes import settings
from transformer.core.errors import ConfigError, nearest
from transformer.core.files import write_durably
from transformer.core.values import to_text
from transformer.runs.config import RunConfig
from transformer.runs.large_presets import LARGE_PRESETS
from transformer.runs.mesh import AUTOMATIC, MeshConfig
from transformer.runs.presets import PRESETS
from transformer.training.progress import counted

CHARACTERS = 65
"""The vocabulary of presets that take it from their data."""
UNSAID = "h100"
"""What the devices are where nothing says it."""
WIDTH = 100
"""Least columns of the table of a search, also where the output has fewer or is no terminal."""


@dataclass(frozen=True, kw_only=True)
class Command(RunConfig):
    sections: ClassVar[Sections] = {
        "plan": ("from_", "topology", "hardware", "search", "out"),
        "devices": ("mesh.data", "mesh.context", "mesh.model", "mesh.fully_sharded", "mesh.rounded"),
        "step": ("batch_size", "accumulation", "model.layers", "model.mixer.backend", "model.dtype", "objective"),
        "model": (*MODEL, "model.vocab_size"),
    }
    """What `--help` shows."""
    from_: FROM = ""
    """A published language model to train: a folder, or a name on the hub; empty: a preset."""
    topology: str | None = None
    """Devices that are connected: v5e:2x4, v5p:4x4x4, h100:8; None: as many as the mesh has."""
    hardware: str | None = None
    """What the devices of no topology are; None: an H100."""
    search: bool = False
    """Try every mesh, rematerialization and number of pieces; --model.layers scanned compiles deep models sooner."""
    out: Path = Path("plan.json")
    """File of the figures."""
    mesh: MeshConfig = MeshConfig(replica=1, data=1)
    """How the devices share a step."""
    preset: tyro.conf.Fixed[tyro.conf.Suppress[Any]] = None
    """The config before the flags were applied."""

    def __post_init__(self):
        super().__post_init__()
        if self.hardware not in (None, *HARDWARE):
            raise ConfigError(f"hardware: unknown {self.hardware!r}{nearest(self.hardware, HARDWARE)}")
        if self.topology is not None:
            Topology.named(self.topology)
            if self.hardware is not None:
                raise ConfigError(f"hardware: {self.hardware}, and --topology {self.topology} has its own; use one")

    @property
    def run(self) -> RunConfig:
        """What is trained."""
        config = cli.fields_of(self, RunConfig)
        return config.replace({"model.vocab_size": config.model.vocab_size or CHARACTERS})


COMMANDS = {name: cli.extend(config, Command) for name, config in (PRESETS | LARGE_PRESETS).items()}


def presets(words: list[str]) -> dict[str, Command]:
    """What a command line may start from: the published model after --from, or the presets."""
    if cli.value_of(words, "--from") is None:
        return COMMANDS
    folder = str(pretrained.find(asked(words)))
    tuned = of_text(pretrained.load_config(folder), folder)
    return {"published": cli.extend(cli.fields_of(tuned, RunConfig), Command, from_=folder)}


def main() -> None:
    command = cli.parse(Command, presets(sys.argv[1:]), description=__doc__)
    if command.out.is_dir() or not command.out.parent.is_dir():
        why = "is a folder" if command.out.is_dir() else "is in no folder that is there"
        raise ConfigError(f"out: {command.out} {why}")
    if command.search:
        _check_left_to_search(command)
    config, mesh = command.run, command.mesh
    topology = None if command.topology is None else Topology.named(command.topology)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", topology.size if topology else devices_of(mesh))
    there = topology is not None and topology.compiles
    devices = topology.devices() if topology and there else jax.devices()
    kind = command.hardware or UNSAID
    hardware = topology.hardware if topology else HARDWARE[kind]
    if topology and not there:
        print(
            f"no compiler for {topology.name} is installed (extra {topology.platform}): by formula alone, which is a "
            "bound: what was compiled took more memory and time (docs/devices.md)"
        )
    platform = topology.platform if topology else None
    if command.search:
        found = search(config, hardware, devices, platform, watch=_watch, like=mesh)
        _show_search(config, found[:15], hardware, len(devices))
        first = training(command, found[0]) if fits(found[0].plan, hardware) else ""
        print(f"the first is\n{first}" if first else "none of them fits")
        figures: Any = [_figures(one, hardware) for one in found]
    else:
        needs, program = plan(config, mesh, devices, platform)
        if program.mesh.size < len(devices):
            print(f"{program.mesh.size} of the {len(devices)} devices are used; --mesh.data takes more")
        one = Found(mesh, config.model.layers, config.accumulation, needs)
        compiled, refused = None, ""
        if topology is None or there:
            try:
                compiled = compile_step(config, program)
            except TooLarge as error:
                refused = str(error)
        _show_one(config, one, compiled, hardware, topology.name if topology else kind)
        if refused:
            print(refused)
        figures = _figures(one, hardware, compiled) | ({"refused": refused} if refused else {})
    write_durably(command.out, json.dumps(figures, indent=2) + "\n")


def _check_left_to_search(command: Command) -> None:
    """Raise `ConfigError` where the command line sets what the search chooses; sizes of no topology count devices."""
    chosen = ["accumulation"]
    # A kind of layers that is given without it has "none".
    chosen += [] if command.model.layers.remat == "none" else ["model.layers.remat"]
    chosen += [] if command.mesh.rounded else ["mesh.fully_sharded"]
    chosen += [] if command.topology is None else ["mesh.data", "mesh.model"]
    for path in chosen:
        given, before = (functools.reduce(getattr, path.split("."), one) for one in (command, command.preset))
        if given != before:
            raise ConfigError(f"search: it chooses --{path.replace('_', '-')}; leave that out")
    if command.mesh.replica != 1:
        raise ConfigError("search: it plans one replica; leave --mesh.replica out")


def devices_of(mesh: MeshConfig) -> int:
    """How many devices a mesh has whose sizes are given."""
    return math.prod(size or 1 for size in (mesh.replica, mesh.data, mesh.context, mesh.model))


def _watch(tried: list[Any]) -> Iterable[Any]:
    return counted(tried, "meshes and rematerialization", len(tried))


def _show_search(config: RunConfig, found: list[Found], hardware: Hardware, devices: int) -> None:
    columns = ["data × model", "remat", "pieces", "state", "grads", "kept", "GB", "fits", "s", "MFU"]
    table = Table(
        *(Column(name, no_wrap=True, min_width=len(name)) for name in columns),
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
        title=f"{_batch(config)} on {devices} devices of {hardware.memory / 1e9:.0f} GB, the best first",
    )
    for one in found:
        needs = one.plan
        state = needs.parameter_bytes + needs.optimizer_bytes
        parts = (state, needs.gradient_bytes, needs.activation_bytes, needs.training_bytes)
        table.add_row(
            f"{one.mesh.data} × {one.mesh.model}" + " sharded" * one.mesh.fully_sharded,
            one.layers.remat,
            str(one.accumulation),
            *(number(n / 1e9) for n in parts),
            "yes" if fits(needs, hardware) else "no",
            number(needs.seconds(hardware)),
            f"{needs.utilization(hardware, needs.seconds(hardware)):.0%}",
        )
    Console(width=max(Console().width, WIDTH)).print(table)


def training(command: Command, one: Found) -> str:
    """The command that trains so, in the words of `transformer train`: what the preset and a mesh do not have yet."""
    preset: Command = command.preset
    known = (name for name, each in COMMANDS.items() if each == preset)
    # One run, as is planned, where finetuning tries two rates.
    published = f"finetune --from {shlex.quote(command.from_)} --learning-rates {HOW['learning_rates'][0]}"
    name = published if command.from_ else next(known)
    layers = {"model.layers": one.layers, "accumulation": one.accumulation}
    wanted = settings(cli.fields_of(command, RunConfig).replace(layers)) | settings(one.mesh, "mesh.")
    there = settings(cli.fields_of(preset, RunConfig)) | settings(dataclasses.replace(AUTOMATIC, replica=1), "mesh.")
    changed = {path: text for path, text in wanted.items() if text != there[path]}
    flags = [_flag(path.replace("_", "-"), text) for path, text in changed.items()]
    return " ".join(["transformer train", name, *flags, "--data.path TEXT"])


def _flag(path: str, text: str) -> str:
    """A setting on a command line, where a truth value is a flag of its own."""
    if text in ("True", "False"):
        parent, dot, name = path.rpartition(".")
        return f"--{parent}{dot}{'' if text == 'True' else 'no-'}{name}"
    return f"--{path} {shlex.quote(text)}"


def _show_one(config: RunConfig, one: Found, compiled: Compiled | None, hardware: Hardware, name: str) -> None:
    pieces = f"in {one.accumulation} pieces" if one.accumulation > 1 else "in one piece"
    title = f"{_batch(config)} {pieces}, {_text(one.mesh)}, remat {one.layers.remat}"
    table = Table("", "predicted", "compiled", title=title)
    for label, form, predicted, read in _rows(one.plan, compiled, hardware, name):
        table.add_row(label, *("" if value is None else form(value) for value in (predicted, read)))
    Console().print(table)


def number(value: float) -> str:
    """Two decimals, or two digits of what is less than a tenth."""
    return f"{value:.2f}" if value == 0 or value >= 0.1 else f"{value:.2g}"


def _batch(config: RunConfig) -> str:
    return f"a step of {config.batch_size} × {config.model.max_length:,} tokens"


Row = tuple[str, Callable[[Any], str], Any, Any]
"""What it is, how it is printed, the prediction, and what was compiled; None for what is not known."""


def _rows(needs: Plan, compiled: Compiled | None, hardware: Hardware, name: str) -> list[Row]:
    seconds, read = needs.seconds(hardware), None if compiled is None else compiled.seconds(hardware, needs.flops)
    state, rest = needs.parameter_bytes + needs.optimizer_bytes, needs.gradient_bytes + needs.activation_bytes
    done = [None] * 4
    if compiled is not None:
        done = [compiled.argument_bytes / 1e9, compiled.temporary_bytes / 1e9, compiled.work.flops / 1e12]
        done.append(compiled.received / 1e9)
    return [
        ("parameters", "{:,}".format, needs.parameters, None),
        ("state, GB a device", number, state / 1e9, done[0]),
        ("the rest, GB a device", number, rest / 1e9, done[1]),
        ("operations, TFLOP a device", number, needs.flops / 1e12, done[2]),
        ("received, GB a device", number, needs.received / 1e9, done[3]),
        (f"a step on {name}, s", number, seconds, read),
        ("MFU", "{:.0%}".format, needs.utilization(hardware, seconds), read and needs.utilization(hardware, read)),
        ("cache of a sequence, GB a device", number, needs.cache_bytes / 1e9, None),
        (f"fits {hardware.memory / 1e9:.0f} GB", str, "yes" if fits(needs, hardware) else "no", None),
    ]


def _figures(one: Found, hardware: Hardware, compiled: Compiled | None = None) -> dict[str, Any]:
    """What plan.json says of one way to train."""
    read = None
    if compiled is not None:
        by_kind = {f"{how.kind} of {how.devices}": size for how, size in compiled.work.collective_bytes.items()}
        numbers = {"argument_bytes": compiled.argument_bytes, "temporary_bytes": compiled.temporary_bytes}
        read = numbers | {"flops": compiled.work.flops, "cycles": compiled.work.cycles, "collective_bytes": by_kind}
    return {
        "mesh": dataclasses.asdict(one.mesh) | {"rules": list(map(to_text, one.mesh.rules))},
        "layers": to_text(one.layers),
        "accumulation": one.accumulation,
        "predicted": one.plan._asdict() | {"seconds": one.plan.seconds(hardware), "fits": fits(one.plan, hardware)},
        "compiled": read,
    }


def _text(mesh: MeshConfig) -> str:
    axes = {name: getattr(mesh, name) for name in ("replica", "data", "context", "model")}
    several = " × ".join(f"{name} {size}" for name, size in axes.items() if size != 1)
    return (several or "1 device") + ", sharded" * mesh.fully_sharded


if __name__ == "__main__":
    cli.main(main)
