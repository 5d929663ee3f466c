"""How a sequence is chosen: strategies as values."""

import abc

import jax

from transformer.config.variant import Variant
from transformer.inference.prompt import Generated, Prompt


class Strategy(Variant, abc.ABC):
    """How sequences are decoded."""

    @abc.abstractmethod
    def decode(self, prompt: Prompt, key: jax.Array | None) -> Generated:
        """The chosen continuations.

        Raises:
          ConfigError: the strategy is random and has no key.
        """
