"""One bit of memory: written, kept, read."""

from dataclasses import dataclass

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.tasks.task import AlgorithmicTask, as_examples, joined

WRITE, READ, IGNORE, ZERO = range(4)


@dataclass(frozen=True)
class FlipFlop(AlgorithmicTask):
    """`w 1 i 0 i 1 r 1 w 0 … r 0`: the bit after `r` is the one last written (Liu et al. 2023, section 3).

    The paper, "Exposing Attention Glitches with Flip-Flop Language Modeling", trains with `ignore` 0.8 and
    tests with 0.8, with 0.98 (sparse) and with 0.1 (dense). The first instruction is `w`, the last `r`; of
    the others, `w` and `r` are equally probable. All other bits are random and not scored.
    """

    name = "flip_flop"
    instructions: int = 256
    """Instructions of an example, each followed by a bit, at least 2; the paper's 512 tokens."""
    ignore: float = 0.8
    """Probability that an instruction is `i`."""

    def __post_init__(self):
        self.at_least(instructions=2)
        if not 0 <= self.ignore <= 1:
            raise ConfigError(f"{self.name}.ignore: {self.ignore} is not in [0, 1]")

    @property
    def symbols(self):
        return ("w", "r", "i", "0", "1")

    @property
    def length(self):
        return 2 * self.instructions

    def examples(self, rng, count):
        shape = count, self.instructions
        active = (1 - self.ignore) / 2
        steps = rng.choice([WRITE, READ, IGNORE], p=[active, active, self.ignore], size=shape)
        steps[:, 0], steps[:, -1] = WRITE, READ
        written = np.maximum.accumulate(np.where(steps == WRITE, np.arange(self.instructions), 0), 1)
        bits = rng.integers(2, size=shape)
        bits = np.where(steps == READ, np.take_along_axis(bits, written, 1), bits)
        tokens = np.stack([steps, ZERO + bits], 2)
        scored = np.stack([np.zeros(shape, bool), steps == READ], 2)
        return as_examples(joined(tokens), joined(scored))
