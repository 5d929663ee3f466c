"""SCAN against the numbers and examples of the paper."""

import pytest

from transformer.data.scan import scan_pairs, scan_split

LEFT, RIGHT = "I_TURN_LEFT", "I_TURN_RIGHT"


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("jump", "I_JUMP"),
        ("turn left", LEFT),
        ("jump left", f"{LEFT} I_JUMP"),
        ("turn opposite right", f"{RIGHT} {RIGHT}"),
        ("turn around left", f"{LEFT} {LEFT} {LEFT} {LEFT}"),
        ("jump around right", f"{RIGHT} I_JUMP {RIGHT} I_JUMP {RIGHT} I_JUMP {RIGHT} I_JUMP"),
        ("turn left twice", f"{LEFT} {LEFT}"),
        ("jump thrice", "I_JUMP I_JUMP I_JUMP"),
        ("jump opposite left and walk thrice", f"{LEFT} {LEFT} I_JUMP I_WALK I_WALK I_WALK"),
        ("run after walk twice", "I_WALK I_WALK I_RUN"),
        (
            "jump opposite left after walk around left",
            f"{LEFT} I_WALK {LEFT} I_WALK {LEFT} I_WALK {LEFT} I_WALK {LEFT} {LEFT} I_JUMP",
        ),
        (
            "walk opposite right thrice after run opposite right",
            " ".join([RIGHT, RIGHT, "I_RUN", *[RIGHT, RIGHT, "I_WALK"] * 3]),
        ),
    ],
)
def test_known_commands(command, actions):
    assert dict(scan_pairs())[command] == actions


def test_every_command_once():
    pairs = scan_pairs()
    assert len(pairs) == len(dict(pairs)) == 20_910
    assert pairs == scan_pairs()
    assert max(len(actions.split()) for _, actions in pairs) == 48
    commands, actions = ({word for pair in pairs for word in pair[side].split()} for side in (0, 1))
    directions = {"turn", "left", "right", "opposite", "around"}
    assert commands == {"walk", "look", "run", "jump", *directions, "twice", "thrice", "and", "after"}
    assert actions == {"I_WALK", "I_LOOK", "I_RUN", "I_JUMP", "I_TURN_LEFT", "I_TURN_RIGHT"}


@pytest.mark.parametrize(
    ("split", "sizes"), [("simple", (16_728, 4_182)), ("length", (16_990, 3_920)), ("add_jump", (14_670, 7_706))]
)
def test_splits_are_disjoint_and_complete(split, sizes):
    train, test = scan_split(split)
    assert (len(train), len(test)) == sizes
    assert not set(train) & set(test)
    assert set(train) | set(test) == set(scan_pairs())


def test_length_trains_on_at_most_22_actions():
    train, test = scan_split("length")
    assert max(len(actions.split()) for _, actions in train) == 22
    assert min(len(actions.split()) for _, actions in test) == 24


def test_add_jump_trains_on_jump_alone():
    train, test = scan_split("add_jump")
    assert {command for command, _ in train if "jump" in command} == {"jump"}
    assert train.count(("jump", "I_JUMP")) == len(train) // 10 == 1_467
    assert all("jump" in command for command, _ in test)
