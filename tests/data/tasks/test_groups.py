"""Products in groups, computed a second time on the things that the elements move."""

import typing

import pytest

from tests.data.tasks.checks import answered, check_examples
from transformer.core.errors import ConfigError
from transformer.data.tasks.groups import WordProblem

GROUPS = {"parity": 2, "s3": 6, "s4": 24, "s5": 120, "a5": 60, "z60": 60, "a4xz5": 60}
TASKS = [
    *(WordProblem(group, items=7) for group in typing.get_args(typing.get_type_hints(WordProblem)["group"])),
    WordProblem("s3", items=5, dense=True),
    WordProblem("a4xz5", items=5, dense=True),
]


def product(group, elements):
    """Factor by factor: permutations one after the other, numbers added."""
    found = []
    for factor, parts in zip(group.split("x"), zip(*(e.split(".") for e in elements), strict=True), strict=True):
        if factor[0] == "z":
            found.append(str(sum(map(int, parts)) % int(factor[1:])))
            continue
        things = list(range(len(parts[0])))
        for part in parts:
            things = [int(part[i]) for i in things]
        found.append("".join(map(str, things)))
    return ".".join(found)


def multiplied(task, words):
    if not task.dense:
        return [None] * (len(words) - 1) + [product(task.group, words[:-2])]
    elements = words[::2]
    products = [product(task.group, elements[: i + 1]) for i in range(len(elements))]
    return [w for answer in products for w in (None, answer)]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_products(task):
    check_examples(task, multiplied)


@pytest.mark.parametrize(("group", "elements"), GROUPS.items())
def test_every_element_is_drawn(group, elements):
    """A word of one element is its own product; there are as many words as elements."""
    assert len(WordProblem(group).symbols) == elements + 1
    words = {words[0] for words, _ in answered(WordProblem(group, items=1), 30 * elements)}
    assert words == set(WordProblem(group).symbols) - {"="}


@pytest.mark.parametrize("dense", [False, True])
def test_sizes(dense):
    """All numbers of elements occur, and symbols do not depend on the largest."""
    task = WordProblem("s3", items=4, dense=dense)
    assert {len(words) for words, _ in answered(task, 200)} == ({2, 4, 6, 8} if dense else {3, 4, 5, 6})
    assert task.symbols == WordProblem("s3", items=40, dense=dense).symbols


def test_no_group():
    with pytest.raises(ConfigError, match=r"^word_problem.group: unknown value 's33'; did you mean 's3'\?$"):
        WordProblem("s33")
