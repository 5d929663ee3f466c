"""The plan: written once, and every later change with the number of runs that were there."""

import json

from transformer.core.json import fingerprint
from transformer.study.plan import kept, said

PLAN = {"margin": 0.01, "arms": {"a": {"config": "x"}}}


def test_a_plan_is_kept_until_it_changes(tmp_path):
    first = kept(tmp_path, PLAN, 0, print)
    assert first["sha256"] == fingerprint(PLAN)
    assert first["changes"] == []
    assert said(first) == f"Plan {first['sha256'][:12]} of {first['written']}: kept."
    assert kept(tmp_path, PLAN, 5, print) == first
    other = {"margin": 0.02, "arms": {"a": {"config": "y"}}}
    changed = kept(tmp_path, other, 7, print)
    assert changed["sha256"] == first["sha256"]
    assert [(c["changed"], c["runs_there"], c["sha256"]) for c in changed["changes"]] == [
        (["arms.a.config", "margin"], 7, fingerprint(other))
    ]
    assert said(changed).endswith("changed in arms.a.config, margin (after 7 runs).")
    assert len(kept(tmp_path, other, 9, print)["changes"]) == 1
    assert len(kept(tmp_path, PLAN, 9, print)["changes"]) == 2  # back is a change too
    fields = {"config": "x", "seeds": 8}
    many = {"margin": 0.01, "arms": {"a": fields, "x=0.1": fields, "y=0.1": fields, "c": fields | {"config": "z"}}}
    assert said(kept(tmp_path, many, 9, print)).endswith("arms.a.seeds, arms.c, arms.x=0.1, arms.y=0.1 (after 9 runs).")
    for arm in many["arms"].values():
        arm["seeds"] = 16
    assert said(kept(tmp_path, many, 12, print)).endswith("; arms.*.seeds (after 12 runs).")
    stored = json.loads((tmp_path / "plan.json").read_text())
    assert stored["plan"] == PLAN
    assert stored["changes"][0]["plan"] == other


def test_a_plan_that_comes_after_runs_says_so(tmp_path):
    assert ", written when 3 of its runs were there: kept." in said(kept(tmp_path, PLAN, 3, print))
