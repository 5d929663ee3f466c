"""The atlas of evidence: every published effect under `experiments/effects`, reproduced or refuted.

    python -m experiments.atlas --minutes 60            what is least resolved first
    python -m experiments.atlas --only swiglu           one effect, until it is decided
    python -m experiments.atlas --only swiglu --afresh  without the runs that come with the repository
    python -m experiments.atlas --confirm               what was found, once more with fresh seeds
    python -m experiments.atlas --minutes 0             the pages alone, from the runs that are there

Results are in `docs/evidence.md`, with a page for each effect, and the numbers of all runs in `experiments/evidence`,
from which a later call goes on, but for runs of the order of rows of before 2026-11-29, which are computed again where
seeds are added; where this is not a checkout, both are in `--workdir`.
"""

import importlib
import pkgutil
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import experiments.effects
from experiments import cli, evidence_pages
from experiments.answers import Answer, answers, effects
from transformer.core import runtime
from transformer.core.errors import ConfigError, nearest
from transformer.study.analyse import read_study
from transformer.study.claim import Claim
from transformer.study.engines import LOCAL, Engine
from transformer.study.study_queue import StudyQueue

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
    confirm: bool = False
    """Ask again what was found, with fresh seeds and every arm at the learning rate that was its best: of the effects
    that are named, or of the latest answer of each."""
    looks: int | None = None
    """Most looks of a study at its results, each with twice the seeds; None: as many as it plans."""
    afresh: bool = False
    """Compute everything again, in a folder of its own, and leave the pages and the repository's runs alone."""
    engine: Engine = LOCAL
    """Where arms are computed: local, dask, dask(workers=2), or a running scheduler, tls://host:port."""


def claims(only: Sequence[str] = ()) -> dict[str, Claim]:
    """All effects, or those with these names in this order.

    Raises:
      ConfigError: there is none of a name.
    """
    path = experiments.effects.__path__
    modules = [importlib.import_module(f"experiments.effects.{found.name}") for found in pkgutil.iter_modules(path)]
    values = [value for module in modules for value in vars(module).values()]
    known = {value.name: value for value in values if isinstance(value, Claim)}
    if unknown := [name for name in only if name not in known]:
        raise ConfigError(f"only: no effect {unknown[0]!r}{nearest(unknown[0], known)}")
    return {name: known[name] for name in only or known}


def kept_in(workdir: Path) -> tuple[Path, Path]:
    """Folders of the archives and of the pages that a call goes on from and writes: those of the checkout.

    What is installed stays as it is; there they are a copy and a new folder in `workdir`.
    """
    if DOCS.with_name("pyproject.toml").exists():
        return EVIDENCE, DOCS
    archives, pages = workdir / EVIDENCE.name, workdir / DOCS.name
    pages.mkdir(parents=True, exist_ok=True)
    if not archives.exists():
        shutil.copytree(EVIDENCE, archives)
    print(f"this is not a checkout: pages are written to {pages}, archives of runs to {archives}")
    return archives, pages


def confirmations(wanted: Mapping[str, Claim], archives: Path, latest: bool) -> dict[str, Claim]:
    """The claims all of whose arms are computed, asked of fresh seeds; those first that have an opposite verdict.

    Args:
      wanted: claims by name.
      archives: their answers.
      latest: leave out what was asked again of longer training.
    """
    found = answers(wanted, archives)
    found = [effect.latest for effect in effects(found)] if latest else found
    whole = [each for each in found if not each.report.failed]
    asked = [each.confirmation for each in sorted(whole, key=lambda each: "opposite" not in each.findings.values())]
    return {claim.name: claim for claim in asked}


def main() -> None:
    command = cli.parse(Command, {"": Command()}, description=__doc__)
    wanted = claims(command.only)
    runtime.start()
    archives, pages = (None, None) if command.afresh else kept_in(command.workdir)
    if command.confirm:
        wanted = confirmations(wanted, archives or EVIDENCE, latest=not command.only)
        if not wanted:
            raise ConfigError("confirm: none of these effects has an answer yet; run the atlas without it first")
    atlas = StudyQueue(
        studies={name: claim.study for name, claim in wanted.items()},
        folder=command.workdir / "afresh" if command.afresh else command.workdir,
        archives=archives,
        looks=command.looks,
        engine=command.engine,
        unresolved={name: claim.unresolved for name, claim in wanted.items()},
    )
    if archives:
        atlas.restore(archives)
    atlas.run(command.minutes)
    for name in wanted if command.only else ():
        if atlas.looked(name):
            report = read_study(atlas.folder / name)
            report.show()
            print(wanted[name].text, wanted[name].published, *Answer(wanted[name], report).verdicts, sep="\n")
            print(f"report.html, .md, .json, .csv and .tex and the pictures are in {atlas.folder / name}")
    if archives and pages:
        evidence_pages.write(claims(), archives, pages)
    if atlas.failed:
        sys.exit(1)


if __name__ == "__main__":
    cli.main(main)
