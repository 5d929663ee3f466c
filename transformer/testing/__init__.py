"""Every choice proven in every context: `check_variant` for one, `python -m transformer.testing` for all and pairs."""

from transformer.testing.check import Checked, check_variant

__all__ = ["Checked", "check_variant"]
