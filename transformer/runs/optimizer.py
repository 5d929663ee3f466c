"""How a run is optimized."""

import math
from dataclasses import dataclass

from transformer.core.changes import Config
from transformer.core.checks import check_fields, check_type
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.runs.rules import AdamW, UpdateRule
from transformer.runs.schedules import Cosine, Schedule


def check_number(value: float, where: str) -> None:
    """Raise `ConfigError` where it is negative, infinite or not a number."""
    if not 0 <= value < math.inf:
        raise ConfigError(f"{where}: {value} is {'negative' if value < 0 else 'not a finite number'}")


@dataclass(frozen=True)
class ParameterGroup(Variant):
    """Factors for parameters by path: `group('embedding*', rate=0.1, decay=0)`."""

    name = "group"
    pattern: str = "*"
    """Pattern of dotted paths, with `*` for anything: `*blocks*kernel`."""
    rate: float = 1.0
    """Factor on the learning rate; 0 freezes the parameters."""
    decay: float | None = None
    """Factor on the weight decay; None: 1 for matrices and 0 for all else, as without a group."""
    layers: tuple[int, ...] | None = None
    """Numbers of layers, from 0 among those of their kind, whose parameters are one array; None: all."""

    def __post_init__(self):
        check_type(self.layers, tuple[int, ...] | None, "group.layers")
        if self.layers is not None and (not self.layers or min(self.layers) < 0):
            raise ConfigError(f"group.layers: {self.layers} are no numbers of layers, which begin at 0")
        for name in ("rate", "decay"):
            value = getattr(self, name)
            if value is not None:
                check_number(value, f"group.{name}")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """An update rule with decoupled weight decay, warm-up, a schedule and clipping."""

    rule: UpdateRule = AdamW()
    """How a gradient becomes a step."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices, multiplied by the learning rate."""
    warmup_steps: int = 100
    """Steps of linear warm-up; 0: no warm-up."""
    schedule: Schedule = Cosine()
    """The factor on the learning rate after warm-up."""
    clip_norm: float | None = 1.0
    """Largest global norm of the gradient; None: no clipping."""
    groups: tuple[ParameterGroup, ...] = ()
    """Parameters with other learning rates and decays; the first matching pattern wins."""
    skip_limit: int = 0
    """Consecutive updates that may be skipped because loss or gradient is not finite; one more is divergence.

    Skipped updates do not advance the schedule; the logged learning rates ignore that.
    """
    skip_above: float | None = None
    """Norm of the gradient of all parameters that are trained, before clipping, above which an update is skipped too;
    None: none is for its norm."""

    def __post_init__(self):
        check_fields(self, "optimizer.")
        for name in ("learning_rate", "weight_decay", "warmup_steps"):
            check_number(getattr(self, name), f"optimizer.{name}")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ConfigError(f"optimizer.clip_norm: {self.clip_norm} is not a positive number; None clips nothing")
        if self.skip_limit < 0:
            raise ConfigError(f"optimizer.skip_limit: {self.skip_limit} is negative")
        if self.skip_above is not None and not (0 < self.skip_above < math.inf and self.skip_limit):
            raise ConfigError(
                f"optimizer.skip_above: {self.skip_above} needs to be positive and finite, and a skip_limit of at "
                "least 1"
            )
