"""How does the loss fall with size? A ladder of widths for two sets of choices, each with a fitted power law.

    python -m experiments.scaling                      two cores: minutes
    python -m experiments.scaling --widths 32 48 64 96 128 --seeds 8
    python -m experiments.scaling --slices 2e11 4e11   which width is best at so many operations

The exponent is that of the number of parameters; its interval, and that of the difference between the two arms, is
over seeds. With `--slices` every width is trained for as many steps as make up that number of operations.

Found with `--seeds 8 --widths 32 48 72 --learning-rates 3e-3 1e-2 3e-2` (2 layers, 300 steps; jax 0.10.2, one core,
2026-11-29): number of parameters and nats per token, and the exponent with its interval:

    gpt    29k 2.504, 62k 2.420, 134k 2.358  0.039 [0.037, 0.041]
    llama  36k 2.312, 79k 2.196, 174k 2.075  0.069 [0.049, 0.089]  +0.030 [+0.010, +0.050]

Llama's choices are 0.19, 0.23 and 0.28 nats ahead, and gain more with size. At the smallest width, where they chose a
higher rate, their runs differ (± 0.07). Their gated layers have half as many parameters again, which the exponent
counts.
"""

import math
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments import cli
from experiments.sections import STUDY
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.activations.activation import GLU, SiLU
from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.study.designs import IsoFlop, Ladder
from transformer.study.report import Report
from transformer.study.scaling import Estimated, best_sizes, ladder_laws
from transformer.study.tables import signed

ARMS = {
    "gpt": {},
    "llama": {
        "model.norm": RMSNorm(),
        "model.position": RoPE(),
        "model.feed_forward.activation": GLU(gate=SiLU()),
    },
}


@dataclass(frozen=True, kw_only=True)
class ScalingCommand(StudyCommand):
    sections = STUDY | {"study": ("widths", "slices", *STUDY["study"])}
    widths: tuple[int, ...] = (32, 48, 64, 96)
    """Widths d_model, ascending."""
    slices: tuple[float, ...] = ()
    """Operations of training at which all widths of the first arm are compared; empty: a ladder at equal steps."""

    def __post_init__(self):
        super().__post_init__()
        needed = 3 if self.slices else 2
        if len(set(self.widths)) < max(needed, len(self.widths)):
            widths = " ".join(map(str, self.widths)) or "none"
            what = "a parabola" if self.slices else "a power law"
            raise ConfigError(f"widths: {what} needs at least {needed} different ones, not {widths}")
        if wrong := [budget for budget in self.slices if not 0 < budget < math.inf]:
            raise ConfigError(f"slices: {wrong[0]} is not a positive number")


def main() -> None:
    presets = {name: cli.extend(command, ScalingCommand) for name, command in budgets("scaling").items()}
    command = cli.parse(ScalingCommand, presets, description=__doc__)
    sizes = {f"d {width}": {"model.d_model": width} for width in command.widths}
    if command.slices:
        base = cli.fields_of(command, RunConfig)
        data = load_data(base.data)
        slices = IsoFlop(data.complete(base), sizes, command.slices, data)
        if report := run_parsed("scaling", slices.design, command):
            show_slices(report, slices)
    else:
        ladder = Ladder(ARMS, sizes)
        if report := run_parsed("scaling", ladder.design, command):
            show_laws(report, ladder)


def show_laws(report: Report, ladder: Ladder) -> None:
    """Print the power law of each arm."""
    table = Table("arm", "loss by size", "exponent [95 %]", "minus the first", box=SIMPLE_HEAD, title="power laws")
    laws = ladder_laws(report, ladder)
    for name in [name for name in ladder.arms if name not in laws]:
        table.add_row(name, "a run failed", "–", "–")
    for name, found in laws.items():
        losses = ", ".join(f"{n / 1000:.0f}k {loss:.3f}" for n, loss in zip(found.sizes, found.losses, strict=True))
        gap = found.against_baseline
        table.add_row(name, losses, _text(found.exponent), "–" if gap is None else _text(gap))
    Console(width=120).print(table)


def show_slices(report: Report, slices: IsoFlop) -> None:
    """Print the best size at each number of operations."""
    table = Table("operations", "best number of parameters [95 %]", box=SIMPLE_HEAD, title="slices of equal operations")
    found = best_sizes(report, slices)
    for budget in [budget for budget in slices.budgets if budget not in found]:
        table.add_row(f"{budget:.2g}", "a run failed")
    for budget, best in found.items():
        low, high = best.interval
        table.add_row(f"{budget:.2g}", f"{best.value:,.0f} [{low:,.0f}, {high:,.0f}]")
    Console(width=120).print(table)


def _text(found: Estimated) -> str:
    return f"{signed(found.value)} [{signed(found.interval.low)}, {signed(found.interval.high)}]"


if __name__ == "__main__":
    cli.main(main)
