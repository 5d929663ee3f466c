"""SCAN: commands and their actions, from the grammar of Lake and Baroni 2018 (figures 6 and 7)."""

from typing import Literal

import numpy as np

_ACTIONS = {"walk": "I_WALK", "look": "I_LOOK", "run": "I_RUN", "jump": "I_JUMP"}
_TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
_TIMES = {"": 1, " twice": 2, " thrice": 3}

_LONGEST_TRAINED = 22


def scan_pairs() -> list[tuple[str, str]]:
    """All 20,910 pairs (command, actions), words separated by spaces, in a fixed order."""
    simple = {verb + times: actions * n for verb, actions in _verbs().items() for times, n in _TIMES.items()}
    meanings = dict(simple)
    meanings |= {f"{first} and {second}": simple[first] + simple[second] for first in simple for second in simple}
    meanings |= {f"{second} after {first}": simple[first] + simple[second] for second in simple for first in simple}
    return [(command, " ".join(actions)) for command, actions in meanings.items()]


def scan_split(
    split: Literal["simple", "length", "add_jump"],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The training and test pairs of an experiment of Lake and Baroni 2018.

    - `simple` (experiment 1): a random 80 % (16,728) and 20 % (4,182), always the same.
    - `length` (experiment 2): at most 22 actions (16,990), and more than 22 (3,920).
    - `add_jump` (experiment 3): "jump" alone is known, and every other command with it (7,706) is to be
      composed. "jump" is repeated until it makes up 10 % of the training pairs (1,467 of 14,670).
    """
    pairs = scan_pairs()
    if split == "simple":
        order = np.random.default_rng(0).permutation(len(pairs))
        cut = len(pairs) * 4 // 5
        return [pairs[i] for i in order[:cut]], [pairs[i] for i in order[cut:]]
    if split == "length":
        return _partition(pairs, lambda command, actions: len(actions.split()) <= _LONGEST_TRAINED)
    train, test = _partition(pairs, lambda command, actions: "jump" not in command.split())
    test.remove(jump := ("jump", _ACTIONS["jump"]))
    return train + [jump] * (len(train) // 9), test


def _verbs() -> dict[str, list[str]]:
    """The actions of every phrase V of the grammar."""
    verbs = {verb: [action] for verb, action in _ACTIONS.items()}
    for side, turn in _TURNS.items():
        for verb, action in [("turn", []), *((verb, [action]) for verb, action in _ACTIONS.items())]:
            verbs[f"{verb} {side}"] = [turn, *action]
            verbs[f"{verb} opposite {side}"] = [turn, turn, *action]
            verbs[f"{verb} around {side}"] = [turn, *action] * 4
    return verbs


def _partition(pairs, keep):
    """The pairs for which `keep(command, actions)`, and the others."""
    return [pair for pair in pairs if keep(*pair)], [pair for pair in pairs if not keep(*pair)]
