"""Parameters with a learning rate and a weight decay of their own."""

from dataclasses import dataclass

from transformer.config.variant import ConfigError, Variant


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

    def __post_init__(self):
        for name in ("rate", "decay"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"group.{name}: {value} is negative")
