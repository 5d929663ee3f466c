"""The fault campaign: faults at random moments, counted, and a table of all faults with what a user sees.

    python tests/campaign.py                          50 kills of each kind and a study; an hour on two cores
    python tests/campaign.py --kills 15 --only 1 2    some of it
    python tests/campaign.py --only                   the table alone

A kill counts as survived if the same command, given again until it ends, leaves what a run without kills
leaves: the same lines in metrics.jsonl, each once, the same final parameters and result bit for bit, and no
temporary files. Counts are kept in campaign.json, the table in CAMPAIGN.md, beside this file.
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from faults import FAULTS, missing_tests
from scipy.stats import beta

from transformer.core import runtime

HERE = Path(__file__).parent
CHAIN = 5
"""Kills of one run before it may end."""
STEPS = 2000
SHAPE = "--model.num-layers 1 --model.d-model 16 --model.mixer.num-heads 2 --model.max-length 8 --batch-size 4"
RUN = f"{SHAPE} --steps {STEPS} --replicas 2 --steps-per-dispatch 5 --checkpoint-every 100 --evaluate-every 500"
TIMES = ("seconds", "tokens_per_second")


class Run:
    """The command of a user, in a folder."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.workdir = folder, folder / name
        text = folder / "text.txt"
        text.write_text("abacabad" * 400)
        words = f"tiny {RUN} --data.path {text} --workdir {self.workdir} --sample-tokens 1 --prompt a --resume"
        self.command = [sys.executable, "-m", "experiments.language_model", *words.split()]

    def start(self) -> subprocess.Popen:
        with (self.folder / "said.txt").open("w") as said:
            return subprocess.Popen(self.command, stdout=said, stderr=said)

    def finish(self) -> None:
        """Run to the end."""
        if self.start().wait():
            raise RuntimeError((self.folder / "said.txt").read_text())

    def lines(self) -> int:
        path = self.workdir / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def steps(self) -> list[int]:
        """Of the checkpoints that there are."""
        return sorted(int(p.name) for p in (self.workdir / "checkpoints").glob("[0-9]*"))

    def partial(self) -> list[int]:
        """Steps whose checkpoints are being written or deleted."""
        return [int(p.name.split(".")[1]) for p in (self.workdir / "checkpoints").glob(".*.partial")]

    def left(self) -> dict[str, Any]:
        """What a finished run leaves behind, without the time it took."""
        import orbax.checkpoint.experimental.v1 as ocp

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # orbax: no shardings were given
            arrays = ocp.load(str(self.workdir / "checkpoints" / f"{self.steps()[-1]:08d}" / "state"))
        result = json.loads((self.workdir / "result.json").read_text())
        return {
            "metrics": (self.workdir / "metrics.jsonl").read_text(),
            "arrays": {name: np.asarray(a).tobytes() for name, a in arrays.items()},
            "result": {name: value for name, value in result.items() if name not in TIMES},
            "temporary": [p.name for p in self.workdir.rglob(".*") if p.name != ".lock"],
            "steps": self.steps(),
        }


Moment = Callable[[Run, subprocess.Popen, random.Random], None]
"""Waits for the moment to kill, or for the end of the process."""


def in_training(run: Run, process: subprocess.Popen, rng: random.Random) -> None:
    """After some lines of metrics, and a moment."""
    wanted = run.lines() + rng.randrange(1, 160)
    while process.poll() is None and run.lines() < wanted:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.05)


def in_a_save(run: Run, process: subprocess.Popen, rng: random.Random) -> None:
    """A moment after the folder of a new checkpoint has appeared, one or some saves from now."""
    wanted = (run.steps() or [0])[-1] + 100 * rng.randrange(1, 4)
    while process.poll() is None and wanted not in run.partial():
        time.sleep(0.0005)
    time.sleep(rng.random() * 0.06)


def in_a_deletion(run: Run, process: subprocess.Popen, rng: random.Random) -> None:
    """As soon as an old checkpoint is on its way out."""
    newest = (run.steps() or [0])[-1] + 100 * rng.randrange(2)
    while process.poll() is None and not any(newest < step for step in run.steps()):
        time.sleep(0.001)
    while process.poll() is None and not is_deleting(run):
        pass


def before_the_first_checkpoint(run: Run, process: subprocess.Popen, rng: random.Random) -> None:
    """At any time from the first file on."""
    while process.poll() is None and not run.workdir.exists():
        time.sleep(0.001)
    time.sleep(rng.random() * 1.5)


def is_deleting(run: Run) -> bool:
    steps = run.steps()
    return bool(steps) and any(step < steps[-1] for step in run.partial())


def is_saving(run: Run) -> bool:
    return any(step > (run.steps() or [0])[-1] for step in run.partial())


KILLS: dict[str, tuple[Moment, Callable[[Run], bool]]] = {
    "1": (in_training, lambda run: True),
    "2": (in_a_save, is_saving),
    "4": (in_a_deletion, is_deleting),
    "9": (before_the_first_checkpoint, lambda run: not run.steps()),
}
"""By row: when to kill, and whether the kill was there, seen from what is on disk after it."""


def kills(row: str, wanted: int, folder: Path, reference: dict[str, Any], rng: random.Random) -> tuple[int, int]:
    """(survived, kills): chains of kills of one run, each compared in the end."""
    moment, was_there = KILLS[row]
    survived = total = 0
    while total < wanted:
        run, hits = Run(folder, f"row {row} {total}".replace(" ", "_")), 0
        while hits < min(CHAIN, wanted - total):
            process = run.start()
            moment(run, process, rng)
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            hits += was_there(run)
        run.finish()
        total += hits
        survived += hits if run.left() == reference else 0
        shutil.rmtree(run.workdir)
        print(f"row {row}: {survived} of {total}", flush=True)
    return survived, total


def bit_flips(wanted: int, folder: Path, rng: random.Random) -> tuple[int, int]:
    """(found, flips) of one bit anywhere in the newest checkpoint."""
    import jax.numpy as jnp

    from transformer.training import checkpoint

    state, template = {"a": jnp.arange(200.0), "b": jnp.arange(3)}, {"a": jnp.zeros(200), "b": jnp.arange(3)}
    for step in (10, 20):
        checkpoint.save(folder, step, state, checkpoint.Notes(step, "", 0, 0.0, {}))
    files = [p for p in sorted((folder / "00000020").rglob("*")) if p.is_file() and p.stat().st_size]
    found = 0
    for _ in range(wanted):
        path = rng.choice(files)
        whole = path.read_bytes()
        place = rng.randrange(8 * len(whole))
        path.write_bytes(whole[: place // 8] + bytes([whole[place // 8] ^ 1 << place % 8]) + whole[place // 8 + 1 :])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            restored = checkpoint.restore(folder, template)
        found += (
            restored is not None
            and restored[1].position == 10
            and any("00000020 is damaged" in str(w.message) for w in said)
        )
        path.write_bytes(whole)
    return found, wanted


def studies(wanted: int, folder: Path, rng: random.Random) -> tuple[int, int]:
    """(survived, studies) of twelve cells on two workers, one of which is killed in the middle."""
    arms = {f"d_ff {16 * i}": {"model.feed_forward.d_ff": 16 * i} for i in range(1, 13)}
    survived = 0
    for number in range(wanted):
        workdir = folder / f"study_{number}"
        run_study(workdir, arms, "dask(workers=2)", kill_after=rng.randrange(2, 8))
        run_study(workdir.with_name(f"local_{number}"), arms, "local", kill_after=None)
        here, there = (
            json.loads((p / "report.json").read_text())["arms"] for p in (workdir, folder / f"local_{number}")
        )
        same = [a | {"seconds": 0} for a in here] == [a | {"seconds": 0} for a in there]
        logs = [p.read_text() for p in workdir.glob("cells/*/log.txt")]
        once = len(logs) == len(arms) and all(log.count("the result is there") == 1 for log in logs)
        begun = sum(log.count(" begins") for log in logs)
        print(f"row 40: report {'equal' if same else 'DIFFERS'}, {begun} processes for {len(arms)} cells", flush=True)
        survived += same and once and begun > len(arms)
    return survived, wanted


def run_study(workdir: Path, arms: dict[str, Any], engine: str, kill_after: int | None) -> None:
    """As a command of its own would; SIGKILL for a worker once so many cells are finished."""
    script = f"""
from transformer.core import runtime
from transformer.runs.presets import PRESETS
from transformer.study.engines import Engine
from transformer.study.study import Study
if __name__ == "__main__":
    runtime.start()
    base = PRESETS["tiny"].replace({{"model.d_model": 32, "model.max_length": 32}}, steps=200)
    Study("widths", base, {arms!r}, seeds=4).run({str(workdir)!r}, engine=Engine.parse({engine!r}))
"""
    path = workdir.with_suffix(".py")
    path.write_text(script)
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, str(path)], env={**os.environ, "JAX_NUM_CPU_DEVICES": "1"})
    if kill_after is not None:
        threading.Thread(target=kill_a_worker, args=(workdir, kill_after, process), daemon=True).start()
    if process.wait():
        raise RuntimeError(f"the study ended with {process.returncode}")
    print(f"row 40: {engine}: {time.monotonic() - started:.0f} s", flush=True)


def kill_a_worker(workdir: Path, finished: int, process: subprocess.Popen) -> None:
    """SIGKILL the parent of a cell in the middle of its training."""
    while process.poll() is None:
        time.sleep(0.01)
        if len(list(workdir.glob("cells/*/result.json"))) < finished:
            continue
        for metrics in workdir.glob("cells/*/metrics.jsonl"):
            if not (metrics.parent / "result.json").exists() and metrics.stat().st_size:
                cell = (metrics.parent / ".lock").read_text().split()[1]
                worker = Path(f"/proc/{cell}/stat").read_text().rpartition(")")[2].split()[1]
                os.kill(int(worker), signal.SIGKILL)
                print(f"row 40: killed worker {worker} of cell {metrics.parent.name}", flush=True)
                return


DRAWN = {"41": 10, "42": 10, "43": 20}
"""Rows whose tests draw faults, and how many for each kill."""


def draws(row: str, count: int) -> tuple[int, int]:
    """Faults drawn by the tests of a row; all are survived, or it ends with their report."""
    names = next(fault.tests for fault in FAULTS if fault.rows == row).split()
    tests = [f"{HERE / file}.py::{test}" for file, test in (name.split("::") for name in names)]
    drawn = [test for test in tests if Path(test.partition("::")[0]).name in ("test_folders.py", "test_readers.py")]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *drawn], env={**os.environ, "FUZZ": str(count)}, capture_output=True
    )
    said = found.stdout.decode()
    if found.returncode:
        sys.exit(said)
    passed = int(re.search(r"(\d+) passed", said)[1])
    return passed * count, passed * count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of each kind")
    parser.add_argument("--studies", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="rows; none: the table alone", default=[*KILLS, "13", "40", *DRAWN])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path, rng = HERE / "campaign.json", random.Random(options.seed)
    counts = json.loads(path.read_text()) if path.exists() else {}
    runtime.start()  # as many devices as the runs have
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if set(options.only) & KILLS.keys():
            whole = Run(folder, "whole")
            whole.finish()
            reference = whole.left()
        for row in options.only:
            if row in DRAWN:
                found = draws(row, DRAWN[row] * options.kills)
            elif row == "13":
                found = bit_flips(10 * options.kills, folder / "bits", rng)
            elif row == "40":
                found = studies(options.studies, folder, rng)
            else:
                found = kills(row, options.kills, folder, reference, rng)
            counts[row] = {"survived": found[0], "faults": found[1], "date": str(date.today())}
            path.write_text(json.dumps(counts, indent=1) + "\n")
    (HERE / "CAMPAIGN.md").write_text(table(counts))


def table(counts: dict[str, Any]) -> str:
    """All faults as Markdown, with what was counted."""
    if absent := missing_tests():
        raise RuntimeError(f"no test {', '.join(absent)}")
    lines = [
        "# Faults, and what a user sees",
        "",
        "Written by `python tests/campaign.py`. Counts are of faults at random moments, survived of tried, with the "
        "lowest rate that 95 % of confidence leaves (Clopper and Pearson); row 40 counts studies of 12 cells on "
        "two workers, one of them killed. Rows without a count are shown by the tests alone.",
        "",
        "| # | fault | what the user sees | counted | tests |",
        "|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        count = counts.get(fault.rows)
        said = (
            f"{count['survived']} of {count['faults']} (≥ {floored(bound(**count))}), {count['date']}" if count else ""
        )
        tests = ", ".join(f"`{test.split('::')[1]}` ({test.split('::')[0]}.py)" for test in fault.tests.split())
        lines.append(f"| {fault.rows} | {fault.fault} | {fault.seen} | {said} | {tests} |")
    return "\n".join(lines) + "\n"


def floored(share: float) -> str:
    """A share to four digits, rounded down: what is shown of a bound may not be more than it."""
    return f"{math.floor(share * 10_000) / 10_000:.4f}"


def bound(survived: int, faults: int, **_: Any) -> float:
    """The lowest rate that is not refuted at 95 % (Clopper and Pearson 1934, one-sided)."""
    return float(beta.ppf(0.05, survived, faults - survived + 1)) if survived else 0.0


if __name__ == "__main__":
    main()
