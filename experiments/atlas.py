"""The atlas of evidence: every published effect under `experiments/effects`, reproduced or refuted.

    python -m experiments.atlas --minutes 60            what is least resolved first
    python -m experiments.atlas --only swiglu           one effect, until it is decided
    python -m experiments.atlas --only swiglu --afresh  without the runs that come with the repository
    python -m experiments.atlas --minutes 0             the pages alone, from the runs that are there

Results are in `docs/evidence.md`, with a page for each effect, and the numbers of all runs in `experiments/evidence`,
from which a later call goes on.
"""

import importlib
import pkgutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import experiments.effects
from experiments import cli, evidence_pages
from transformer.core import runtime
from transformer.core.values import ConfigError, nearest
from transformer.study.analyse import read_study
from transformer.study.archive import pack, unpack
from transformer.study.claim import Claim
from transformer.study.engines import LOCAL, Engine
from transformer.study.record import STUDY
from transformer.study.running import StudyError

EVIDENCE = Path(__file__).parent / "evidence"
"""The studies that come with the repository."""
DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True, kw_only=True)
class Command:
    workdir: Path = Path("results/atlas")
    """Folder of the studies."""
    minutes: float | None = None
    """Time after which no study is begun or gets more seeds; None: until all are decided or have all their seeds."""
    only: tuple[str, ...] = ()
    """Names of effects; empty: all."""
    looks: int | None = None
    """Most looks of a study at its results, each with twice the seeds; None: as many as it plans."""
    afresh: bool = False
    """Compute everything again, in a folder of its own, and leave the pages and the repository's runs alone."""
    engine: Engine = LOCAL
    """Where arms are computed: local, dask, dask(workers=2), or a running scheduler, tcp://host:port."""


def claims(only: Sequence[str] = ()) -> dict[str, Claim]:
    """All effects, or those with these names.

    Raises:
      ConfigError: there is none of a name.
    """
    path = experiments.effects.__path__
    modules = [importlib.import_module(f"experiments.effects.{found.name}") for found in pkgutil.iter_modules(path)]
    known = {module.CLAIM.name: module.CLAIM for module in modules}
    if unknown := [name for name in only if name not in known]:
        raise ConfigError(f"only: no effect {unknown[0]!r}{nearest(unknown[0], known)}")
    return {name: claim for name, claim in known.items() if not only or name in only}


@dataclass
class Atlas:
    """Studies that run, what is least resolved first."""

    command: Command
    folder: Path
    """Where the studies are, and `runs`, which they share."""

    def run(self, wanted: dict[str, Claim]) -> None:
        """Run what is open, in turn, until the time is over."""
        ends = time.monotonic() + 60 * (self.command.minutes if self.command.minutes is not None else 1e9)
        failed = set[str]()
        while time.monotonic() < ends:
            todo = [(self.urgency(claim), name) for name, claim in wanted.items() if name not in failed]
            todo = [each for each in todo if each[0] > 0]
            if not todo:
                return
            _, name = max(todo, key=lambda each: each[0])
            print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
            try:
                self.look(wanted[name])
            except (StudyError, ConfigError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed.add(name)

    def look(self, claim: Claim) -> None:
        """One more look at a study, and its archive."""
        workdir = self.folder / claim.name
        looks = self.looks(claim) + 1
        claim.study.run(workdir, engine=self.command.engine, runs=self.folder / "runs", looks=looks, say=_say)
        if not self.command.afresh:
            pack(workdir, EVIDENCE / f"{claim.name}.zip")

    def looks(self, claim: Claim) -> int:
        """How often a study has looked at its results."""
        path = self.folder / claim.name / STUDY
        if not path.exists():
            return 0
        seeds = max(arm.seeds for arm in read_study(path.parent).arms)
        return sum(look <= seeds for look in claim.study.looks)

    def urgency(self, claim: Claim) -> float:
        """How much a study is in want of seeds: infinite for none, 0 where it is decided."""
        looks = self.looks(claim)
        if not looks:
            return float("inf")
        if looks >= min(len(claim.study.looks), self.command.looks or len(claim.study.looks)):
            return 0.0
        found = read_study(self.folder / claim.name).contrasts
        open_ = [c for name, c in found.items() if name in claim.expected and c.verdict == "unresolved"]
        return max((c.interval.high - c.interval.low for c in open_), default=0.0) / claim.study.margin


def _say(line: str) -> None:
    if not line.startswith("  ") or "warning" not in line:
        print(f"    {line}", flush=True)


def main() -> None:
    command = cli.parse(Command, {"": Command()}, description=__doc__ or "")
    wanted = claims(command.only)
    folder = command.workdir / "afresh" if command.afresh else command.workdir
    if not command.afresh:
        for name in wanted:
            if (path := EVIDENCE / f"{name}.zip").exists():
                unpack(path, folder / name, folder / "runs")
    runtime.start()
    Atlas(command, folder).run(wanted)
    evidence_pages.write(claims(), EVIDENCE, DOCS)


if __name__ == "__main__":
    cli.main(main)
