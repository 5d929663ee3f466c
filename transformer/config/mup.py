"""The maximal update parametrization: one learning rate for all widths."""

from typing import Any

from transformer.config.attention import InverseScale
from transformer.config.groups import ParameterGroup
from transformer.config.parameters import FanIn
from transformer.config.run import RunConfig
from transformer.config.variant import ConfigError


def mup(config: RunConfig, base_width: int) -> dict[str, Any]:
    """What µP changes in a config, by dotted path (Yang et al. 2022, Tensor Programs V, table 8, Adam).

    A learning rate that is best at the base width is then about the best at any `d_model`: matrices of the
    layers begin with the variance 1/fan-in and have the learning rate times base width / width (and the decay
    over that, so that both together are the same), logits have the same factor, scores are q·k / head size.
    Tables, biases and gains are as they were. `d_ff` and the size or number of heads are to grow with `d_model`.

    Args:
      config: as wide as it is to be.
      base_width: the `d_model` at which learning rate and weight decay were tuned, with these changes made.

    Raises:
      ConfigError: the width is not positive; the steps of the rule are of another size; there are experts.
    """
    if base_width < 1:
        raise ConfigError(f"mup: base width {base_width} is not a positive number")
    if not config.optimizer.rule.entrywise:
        raise ConfigError(f"mup: the steps of {config.optimizer.rule} are not of Adam's size; use adamw")
    if any(kind.num_experts for kind in (config.model.feed_forward, *config.model.pattern.feed_forward)):
        raise ConfigError("mup: matrices of experts have no learning rate here; use feed_forward=dense")
    factor = base_width / config.model.d_model
    hidden = ParameterGroup("*blocks*.kernel", rate=factor, decay=1 / factor)
    return {
        "model.initializer": FanIn(),
        "model.scale": InverseScale(),
        "model.logit_scale": factor,
        # First, so that a group of the config that would take its matrices is left without and refused.
        "optimizer.groups": (hidden, *config.optimizer.groups),
    }
