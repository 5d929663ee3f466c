"""What a run or a study would be: configs, parameters, operations, memory and time, without training."""

import math
from collections.abc import Sequence

from experiments.info import lines
from transformer.analysis.counts import parameter_count, step_flops
from transformer.analysis.plan import plan
from transformer.core.changes import changed, settings
from transformer.data.dataset import Dataset
from transformer.objectives.objective import NextToken
from transformer.runs.config import Replica, RunConfig, unfinished_warm_up
from transformer.runs.mesh import MeshConfig
from transformer.study.arms import prepared
from transformer.study.budget import step_seconds
from transformer.study.study import Study
from transformer.training.progress import duration


def told(config: RunConfig, replicas: Sequence[Replica], preset: RunConfig, data: Dataset) -> str:
    """The text of `--dry-run`: what differs from the preset first.

    Args:
      config: the config, completed from its data.
      replicas: the runs that are trained together.
      preset: what the command line began with.
      data: what is trained on.
    """
    own = changed(config, preset)
    rest = {path: text for path, text in settings(config).items() if path not in own}
    return "\n".join(
        [
            "differs from the preset, or comes from the data:",
            lines(own) or "  nothing",
            "as in the preset:",
            lines(rest),
            f"to be trained, {len(replicas)} replica{'s' * (len(replicas) != 1)}:",
            lines(costs(config, len(replicas), data)),
            *filter(None, [unfinished_warm_up(config, replicas)]),
        ]
    )


def of_study(study: Study, data: Dataset, confirm: bool = False) -> str:
    """The text of `--dry-run` of a study, with all its runs, also those that are there already, or are to confirm it.

    A few steps of one run of the baseline are timed; other arms count by their operations. Runs of an arm are trained
    together, which takes no longer than one after another.
    """
    arms = prepared(study, data)
    base = arms[study.baseline_name]
    runs = {name: len(arm.replicas(study.seeds)) for name, arm in arms.items()}
    each = {name: arm.costs[1] * arm.config.batch_size * arm.config.steps for name, arm in arms.items()}
    # Arms that are one config share the runs of a seed and rate.
    distinct = {(arm.sha256, run): each[name] for name, arm in arms.items() for run in arm.replicas(study.seeds)}
    fresh = {(arm.sha256, run.seed): each[name] for name, arm in arms.items() for run in arm.replicas(study.seeds)}
    operations = sum(distinct.values()) + confirm * sum(fresh.values())
    seconds = step_seconds(base.config.replace(steps_per_dispatch=1), base.data) * base.config.steps
    rows = {}
    for name, arm in arms.items():
        needs = costs(arm.config, runs[name], arm.data)
        found = [f"{runs[name]} runs", f"{arm.costs[0]:,} parameters", needs["all steps"]]
        found += [needs["memory"].partition(":")[0]] if "memory" in needs else []
        rows[name] = f"{', '.join(found)}  {arm.changes}".rstrip()
    and_fresh = f", and {len(fresh)} of fresh seeds" * confirm
    more = f", up to {study.looks[-1]} where a verdict is open" * (len(study.looks) > 1)
    total = {
        "seeds": f"{study.first_seed} to {study.first_seed + study.seeds - 1}{more}",
        "learning rates": ", ".join(f"{rate:g}" for rate in base.rates),
        "runs": f"{len(distinct)} in {len({arm.sha256 for arm in arms.values()})} cells{and_fresh}",
        "operations": f"{scaled(operations)}FLOP",
        "time": f"at most {duration(seconds * operations / each[study.baseline_name])} here, compilation aside",
    }
    return "\n".join([f"{study.name}, to be trained:", lines(rows), "in all:", lines(total)])


def costs(config: RunConfig, count: int, data: Dataset) -> dict[str, str]:
    """Parameters, operations and memory of a number of replicas; memory where the planner's formula holds."""
    step = step_flops(config, data)
    found = {
        "parameters": f"{parameter_count(config.model):,} each",
        "a step": f"{scaled(step * count)}FLOP",
        "all steps": f"{scaled(step * count * config.steps)}FLOP",
    }
    if config.model.kind == "tokens" and type(config.objective) is NextToken and config.model.memory_length is None:
        needs, _ = plan(config, MeshConfig(replica=1, data=1, model=1))
        state = needs.parameter_bytes + needs.optimizer_bytes
        parts = {"state": state, "gradients": needs.gradient_bytes, "activations": needs.activation_bytes}
        each = ", ".join(f"{name} {scaled(size * count)}B" for name, size in parts.items())
        found["memory"] = f"{scaled(needs.training_bytes * count)}B: {each}"
    return found


def scaled(number: float) -> str:
    """Three digits and a prefix of powers of a thousand: 12.3 G."""
    rounded = float(f"{number:.3g}")  # 999,950 is 1 M
    power = min(int(math.log10(rounded)) // 3, 8) if rounded >= 1 else 0
    return f"{number / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'][power]}"
