"""What a run would be: its config, parameters, operations and memory, without training it."""

import math
from collections.abc import Sequence

from experiments.settings import changed, lines, settings
from transformer.analysis.counts import parameter_count, train_flops
from transformer.analysis.plan import plan
from transformer.models.config import ModelConfig
from transformer.objectives.objective import NextToken
from transformer.runs.config import Replica, RunConfig
from transformer.runs.mesh import MeshConfig


def told(config: RunConfig, replicas: Sequence[Replica], preset: RunConfig) -> str:
    """The text of `--dry-run`: what differs from the preset first.

    Args:
      config: the config, completed from its data.
      replicas: the runs that are trained together.
      preset: what the command line began with.
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
            lines(costs(config, len(replicas))),
        ]
    )


def costs(config: RunConfig, count: int) -> dict[str, str]:
    """Parameters, operations and memory of a number of replicas; memory where the planner's formula holds."""
    step = train_flops(config.model) * config.batch_size
    found = {
        "parameters": f"{parameter_count(config.model):,} each",
        "a step": f"{scaled(step * count)}FLOP",
        "all steps": f"{scaled(step * count * config.steps)}FLOP",
    }
    if type(config.model) is ModelConfig and type(config.objective) is NextToken and config.model.memory_length is None:
        needs, _ = plan(config, MeshConfig(replica=1, data=1, model=1))
        state = needs.parameter_bytes + needs.optimizer_bytes
        parts = {"state": state, "gradients": needs.gradient_bytes, "activations": needs.activation_bytes}
        each = ", ".join(f"{name} {scaled(size * count)}B" for name, size in parts.items())
        found["memory"] = f"{scaled(needs.training_bytes * count)}B: {each}"
    return found


def scaled(number: float) -> str:
    """Three digits and a prefix of powers of a thousand: 12.3 G."""
    power = min(int(math.log10(number)) // 3, 6) if number >= 1 else 0
    return f"{number / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}"
