"""Versions and devices; or of a folder: the config, the state and the last metrics of a run, or the cells of a study.

    transformer info
    transformer info results/language_model

Nothing in the folder changes.
"""

import argparse
import json
from pathlib import Path

from experiments import cli
from experiments.command import way_on
from transformer.core.changes import changed, settings
from transformer.core.errors import ConfigError
from transformer.data.dataset import read_run_config
from transformer.study.plan import PLAN
from transformer.training import checkpoint
from transformer.training.environment import environment
from transformer.training.metrics import METRICS, read_metrics
from transformer.training.workdir import CONFIG, read_identity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="of a run, a cell or a study; without one, this machine")
    folder = parser.parse_args().folder
    if folder is None:
        print(of_machine())
    elif (folder / PLAN).exists():
        print(of_study(folder))
    else:
        print(of_run(folder))


def of_machine() -> str:
    """What a run would run on here."""
    here = environment()
    devices = {kind: here["devices"].count(kind) for kind in here["devices"]}
    return lines(
        {"python": here["python"]}
        | {name: version or "not installed" for name, version in here["packages"].items()}
        | {"devices": ", ".join(f"{count} × {kind}" for kind, count in devices.items())}
        | {name: str(here[name]) for name in ("platform", "processor", "cores")}
    )


def of_run(folder: Path) -> str:
    """Config, state and last metrics of a run."""
    stored = read_identity(folder)
    config = read_run_config(stored.run)
    own = changed(config, type(config)())
    rest = {path: text for path, text in settings(config).items() if path not in own}
    reached = state(folder, config.steps)
    if checkpoint.steps(folder / "checkpoints")[-1:] < [config.steps]:
        began = "the command that began it goes on, with --resume"  # which alone has the initial values
        reached += f"; {way_on(folder, type(config).__name__) if stored.initial is None else began}"
    return "\n".join(
        [
            f"{type(config).__name__}, {len(stored.replicas)} replicas: {reached}",
            "settings that differ from the defaults:",
            lines(own),
            "the others:",
            lines(rest),
            *last_metrics(folder),
        ]
    )


def state(folder: Path, steps: int) -> str:
    """How far a run is."""
    saved = checkpoint.steps(folder / "checkpoints")
    if not saved:
        return f"no checkpoint of {steps} steps yet"
    if saved[-1] < steps:
        return f"{saved[-1]} of {steps} steps are saved"
    return f"all {steps} steps are done"


def last_metrics(folder: Path) -> list[str]:
    """The last value of every metric, a line for each replica."""
    last: dict[int, dict[str, float]] = {}
    for line in read_metrics(folder) if (folder / METRICS).exists() else ():
        replica = last.setdefault(line["replica"], {})
        replica |= {name: value for name, value in line.items() if name != "replica"}
    return [f"replica {i}: " + ", ".join(f"{name} {text(v)}" for name, v in each.items()) for i, each in last.items()]


def lines(found: dict[str, str]) -> str:
    """Settings, one a line, the values below each other."""
    width = max(map(len, found), default=0)
    return "\n".join(f"  {path:{width}}  {text}" for path, text in found.items())


def text(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


def of_study(folder: Path) -> str:
    """The plan of a study and the state of its cells."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        last = (plan.get("changes") or [plan])[-1]
        arms = ", ".join(last["plan"]["arms"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(f"{folder / PLAN}: is not the plan of a study") from None
    cells = {each.name: each for each in sorted((folder / "cells").glob("*/")) if (each / CONFIG).exists()}
    found = {name: state(each, read_identity(each).run["steps"]) for name, each in cells.items()}
    told = f"a study of {arms}; `transformer report {folder}` prints its results\ncells:\n"
    return told + lines(found)


if __name__ == "__main__":
    cli.main(main)
