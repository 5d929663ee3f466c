"""The flip-flop language: a bit kept in a variable; the shares of the instructions."""

import numpy as np
import pytest

from tests.data.tasks.checks import SPECIAL, check_examples
from transformer.core.errors import ConfigError
from transformer.data.tasks.flip_flop import FlipFlop


def read(task, words):
    assert (words[0], words[-2]) == ("w", "r")
    memory, answers = None, []
    for step, bit in zip(words[::2], words[1::2], strict=True):
        assert step in set("wri")
        assert bit in set("01")
        memory = bit if step == "w" else memory
        answers += [None, memory if step == "r" else None]
    return answers


@pytest.mark.parametrize("task", [FlipFlop(), FlipFlop(2), FlipFlop(15, ignore=0.1), FlipFlop(15, ignore=1.0)], ids=str)
def test_examples(task):
    check_examples(task, read)


def test_shares():
    """Of all instructions but the first and the last; every bit is 1 half of the time."""
    tokens, _ = FlipFlop(11, ignore=0.6).examples(np.random.default_rng(0), 4000)
    steps = tokens[:, 2:-2:2] - len(SPECIAL)
    np.testing.assert_allclose(np.bincount(steps.ravel()) / steps.size, [0.2, 0.2, 0.6], atol=0.02)
    np.testing.assert_allclose((tokens[:, 1::2] == len(SPECIAL) + 4).mean(0), 0.5, atol=0.04)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instructions": 1}, "flip_flop.instructions: 1 is less than 2"),
        ({"ignore": -0.1}, r"flip_flop.ignore: -0.1 is not in \[0, 1\]"),
        ({"ignore": 1.1}, r"flip_flop.ignore: 1.1 is not in \[0, 1\]"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        FlipFlop(**fields)
