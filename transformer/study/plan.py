"""The plan of a study: written and hashed before its first run; later changes are recorded."""

import datetime
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformer.core.files import read_value, write_sealed
from transformer.core.json import fingerprint
from transformer.training.workdir import differences

PLAN = "plan.json"


@dataclass(frozen=True)
class _Change:
    """A plan that was changed."""

    written: str
    plan: dict[str, Any]
    runs_there: int
    changed: list[str]


@dataclass(frozen=True)
class _Stored:
    """What the file holds: the first plan, and all changes of it."""

    written: str
    plan: dict[str, Any]
    runs_there: int
    changes: list[_Change] = field(default_factory=list)


def kept(workdir: Path, plan: dict[str, Any], runs_there: int, say: Callable[[str], object]) -> dict[str, Any]:
    """The plan in a folder, written where there is none; a plan that differs is recorded as a change.

    Args:
      workdir: folder of the study.
      plan: question, metric, margin, arms, seeds and stopping rule, as JSON data.
      runs_there: how many of its runs are computed already, which a change may have been made after.
      say: is told of a change that is made now.

    Returns:
      The first plan with its `sha256` and date, the list of `changes`, and the hash of the plan in force.
    """
    path, now = workdir / PLAN, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        stored = read_value(_Stored, path)
    except FileNotFoundError:
        stored = _Stored(now, plan, runs_there)
    current = stored.changes[-1].plan if stored.changes else stored.plan
    if changed := differences(current, plan):
        stored.changes.append(_Change(now, plan, runs_there, changed))
        say(f"the plan is another one than that of {stored.written}: {_gathered(changed)}, after {runs_there} runs")
    write_sealed(path, asdict(stored))
    return {**_hashed(stored), "changes": [{**_hashed(each), "changed": each.changed} for each in stored.changes]}


def _hashed(each: _Stored | _Change) -> dict[str, Any]:
    return {"sha256": fingerprint(each.plan), "written": each.written, "runs_there": each.runs_there}


def said(plan: dict[str, Any]) -> str:
    """Whether the plan was kept, in a line."""
    told = f"Plan {plan['sha256'][:12]} of {plan['written']}"
    if plan["runs_there"]:
        told += f", written when {plan['runs_there']} of its runs were there"
    if not plan["changes"]:
        return f"{told}: kept."
    changes = "; ".join(f"{_gathered(c['changed'])} (after {c['runs_there']} runs)" for c in plan["changes"])
    return f"{told}: changed in {changes}."


def _gathered(paths: list[str]) -> str:
    """Paths of a plan in a line; what changed in several arms is said once, `arms.*.learning_rates`."""
    alike: dict[str, list[str]] = {}
    for path in paths:
        alike.setdefault(re.sub(r"^arms\..+\.(?=(config|learning_rates|seeds)$)", "arms.*.", path), []).append(path)
    return ", ".join(pattern if len(own) > 1 else own[0] for pattern, own in alike.items())
