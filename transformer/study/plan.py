"""The plan of a study: written and hashed before its first run, and what was changed later is said."""

import datetime
import json
from pathlib import Path
from typing import Any

from transformer.runs.config import fingerprint
from transformer.training.checkpoint import write_durably
from transformer.training.workdir import differences

PLAN = "plan.json"


def kept(workdir: Path, plan: dict[str, Any], runs_there: int) -> dict[str, Any]:
    """The plan in a folder, written where there is none; a plan that differs is recorded as a change.

    Args:
      workdir: folder of the study.
      plan: question, metric, margin, arms, seeds and stopping rule, as JSON data.
      runs_there: how many of its runs are computed already, which a change may have been made after.

    Returns:
      The first plan with its `sha256` and date, the list of `changes`, and the hash of the plan in force.
    """
    path, now = workdir / PLAN, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    stored = json.loads(path.read_text()) if path.exists() else None
    if stored is None:
        stored = {"sha256": fingerprint(plan), "written": now, "plan": plan, "runs_there": runs_there, "changes": []}
    current = stored["changes"][-1]["plan"] if stored["changes"] else stored["plan"]
    if changed := differences(current, plan):
        change = {"written": now, "runs_there": runs_there, "changed": changed, "plan": plan}
        stored["changes"].append({"sha256": fingerprint(plan), **change})
    write_durably(path, json.dumps(stored, indent=1))
    return {
        "sha256": stored["sha256"],
        "written": stored["written"],
        "runs_there": stored["runs_there"],
        "changes": [{k: v for k, v in change.items() if k != "plan"} for change in stored["changes"]],
    }


def said(plan: dict[str, Any]) -> str:
    """Whether the plan was kept, in a line."""
    told = f"Plan {plan['sha256'][:12]} of {plan['written']}"
    if plan["runs_there"]:
        told += f", written when {plan['runs_there']} of its runs were there"
    if not plan["changes"]:
        return f"{told}: kept."
    changes = "; ".join(f"{', '.join(c['changed'])} (after {c['runs_there']} runs)" for c in plan["changes"])
    return f"{told}: changed in {changes}."
