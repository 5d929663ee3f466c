"""Checks of every choice in every context: `check_variant` checks one, `python -m transformer.testing` all of them."""

from transformer.testing.check import Checked, check_variant

__all__ = ["Checked", "check_variant"]
