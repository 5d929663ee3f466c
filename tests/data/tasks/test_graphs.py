"""Graphs, read back from the words and searched in plain Python."""

import random

import numpy as np
import pytest

from tests.data.tasks.checks import answered, check_examples
from transformer.core.errors import ConfigError
from transformer.data.tasks.graphs import Brevo, Depo, dependencies
from transformer.data.tasks.task import AlgorithmicTask

DEPO = [
    Depo(),
    Depo(nodes=5, hops=9, exact=True),
    Depo(nodes=6, letters=3, longest=2, questions=2),
    Depo(nodes=7, letters=2, shortest=2, longest=4),
]
BREVO = [
    Brevo(),
    Brevo(nodes=9, exact=True),
    Brevo(nodes=12, letters=2, shortest=2, longest=4),
    Brevo(nodes=8, letters=8, unique=False),
]


def names_of(words):
    """Each name as the tuple of its words, which ends with the first that has no hyphen."""
    names = [()]
    for word in words:
        names[-1] += (word,)
        if not word.endswith("-"):
            names.append(())
    assert names.pop() == ()
    return names


def pairs_of(words):
    names = names_of(words)
    return list(zip(names[::2], names[1::2], strict=True))


def walked(task, words):
    """Each question is answered by walking from pair to pair."""
    start = next(i for i, w in enumerate(words) if w[0] == "?")
    after = dict(pairs_of(words[:start]))
    found, place = [None] * start, start
    while place < len(words):
        equals = words.index("=", place)
        (node,) = names_of(words[place + 1 : equals])
        for _ in range(int(words[place][1:])):
            node = after[node]
        found += [None] * (equals + 1 - place) + list(node)
        place = equals + 1 + len(node)
    return found


@pytest.mark.parametrize("task", DEPO, ids=str)
def test_hops(task):
    check_examples(task, walked)


@pytest.mark.parametrize("task", DEPO, ids=str)
def test_every_node_has_one_before_and_one_after_and_all_are_in_one_cycle(task):
    sizes = set()
    for words, _ in answered(task, 200):
        after = dict(pairs_of(words[: next(i for i, w in enumerate(words) if w[0] == "?")]))
        node, seen = next(iter(after)), set()
        while node not in seen:
            seen.add(node)
            node = after[node]
        assert seen == set(after)
        asked = [question.split("=")[0].split(" ", 1)[1] for question in " ".join(words).split("?")[1:]]
        assert len(asked) == min(task.questions, len(after))
        assert len(set(asked)) == len(asked)
        sizes.add(len(after))
    assert sizes == ({task.nodes} if task.exact else set(range(min(sizes), task.nodes + 1)))
    assert task.exact or min(sizes) == 3


def test_hops_and_sizes():
    """Hops are uniform, or all the largest; n nodes have a probability proportional to 1 / (n + √N)."""
    hops = [w for words, _ in answered(Depo(nodes=9, hops=3), 1000) for w in words if w[0] == "?"]
    assert np.allclose([hops.count(f"?{k}") / len(hops) for k in (1, 2, 3)], 1 / 3, atol=0.03)
    assert {w for words, _ in answered(Depo(hops=3, exact=True)) for w in words if w[0] == "?"} == {"?3"}
    examples = [words for words, _ in answered(Depo(nodes=9, questions=1), 6000)]
    sizes = [next(i for i, w in enumerate(words) if w[0] == "?") // 2 for words in examples]
    expected = np.array([1 / (n + 3) for n in range(3, 10)])
    np.testing.assert_allclose(np.bincount(sizes)[3:] / 6000, expected / expected.sum(), atol=0.02)


def test_pairs_are_in_random_order():
    """Two pairs are in the order of the cycle about as often as in the other one; and any edge is the last one."""
    walks, edges = [], []
    for words, _ in answered(Depo(nodes=3, questions=1), 400):
        (_, after), (before, _), _ = pairs_of(words[:6])
        walks.append(after == before)
    assert 0.4 < np.mean(walks) < 0.6
    for words, _ in answered(Brevo(nodes=3, letters=9), 400):
        pairs = pairs_of(words[: words.index("?")])
        edges.append((words[words.index("?") + 1],) == pairs[-1][1])
    assert 0.5 < np.mean(edges) < 0.9


def needs_of(words):
    cut, equals = words.index("?"), words.index("=")
    (query,) = names_of(words[cut + 1 : equals])
    needs = {query: set()}
    for x, y in pairs_of(words[:cut]):
        needs.setdefault(x, set())
        needs.setdefault(y, set()).add(x)
    return needs, query


def wanted_by(needs, query):
    wanted = {query}
    for _ in needs:
        wanted |= {other for node in wanted for other in needs[node]}
    return wanted


def test_short_names_are_anywhere_in_a_graph():
    """The node that is asked for, which depends on others, has a short name as often as any node."""
    task = Brevo(nodes=4, letters=2, longest=2, exact=True)
    graphs = [needs_of(words) for words, _ in answered(task, 4000)]
    asked = np.mean([len(query) == 1 for _, query in graphs])
    assert abs(asked - np.mean([len(name) == 1 for needs, _ in graphs for name in needs])) < 0.03


def first_order(task, words):
    """Among all that the query needs, always the smallest name that waits for nothing."""
    needs, query = needs_of(words)
    wanted, order = wanted_by(needs, query), []
    while len(order) < len(wanted):
        ready = [n for n in wanted if n not in order and needs[n] <= set(order)]
        order.append(min(ready, key=lambda name: [task.symbols.index(w) for w in name]))
    return [None] * (words.index("=") + 1) + [w for name in order for w in name] + ["</s>"]


def any_order(task, words):
    """The order that is written, if it is possible."""
    needs, query = needs_of(words)
    answer = words[words.index("=") + 1 : -1]
    order = names_of(answer)
    assert len(order) == len(wanted_by(needs, query))
    assert set(order) == wanted_by(needs, query)
    assert all(needs[name] <= set(order[:i]) for i, name in enumerate(order))
    return [None] * (words.index("=") + 1) + [*answer, "</s>"]


@pytest.mark.parametrize("task", BREVO, ids=str)
def test_orders(task):
    check_examples(task, first_order if task.unique else any_order)


def test_all_possible_orders_are_drawn():
    """Questions with several answers have another one than the first of them about as often as not."""
    task = Brevo(nodes=6, letters=6, unique=False, exact=True)
    others = [first_order(task, words) != found for words, found in answered(task, 300)]
    assert 0.2 < np.mean(others) < 0.9


@pytest.mark.parametrize("task", BREVO, ids=str)
def test_sizes(task):
    sizes = {len(needs_of(words)[0]) for words, _ in answered(task, 300)}
    assert sizes <= set(range(2, task.nodes + 1))
    assert task.nodes in sizes
    assert task.exact or 3 in sizes
    assert max(len(words) for words, _ in answered(task, 300)) <= task.length


@pytest.mark.parametrize("count", [3, 4, 5, 20])
def test_degrees(count):
    draw, seen, leaves = random.Random(0), set(), set()
    for _ in range(400):
        needs = dependencies(draw, count)
        assert len(needs) == count
        first = next(i for i, own in enumerate(needs) if own)
        leaves.add(first)
        assert all(own for own in needs[first:])
        for node, own in enumerate(needs):
            assert len(set(own)) == len(own) <= 4
            assert all(other < node for other in own)
            seen.add(len(own))
        assert all(sum(node in own for own in needs) <= 4 for node in range(count))
    assert leaves == set(range(1, (count - 1) // 4 + 2))
    assert seen == set(range(min(count, 5)))


@pytest.mark.parametrize("task", [*DEPO, *BREVO], ids=str)
def test_all_symbols_occur(task):
    words = {w for words, _ in answered(task, 600) for w in words} - {"</s>"}
    shown = {w for w in task.symbols if w[0] != "?" or w in words} if task.exact else set(task.symbols)
    assert words == shown


def test_symbols_do_not_depend_on_the_number_of_nodes():
    for cls in (Depo, Brevo):
        assert cls(nodes=9).symbols == cls(nodes=40, exact=True).symbols


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depo(nodes=2)", "depo.nodes: 2 is less than 3"),
        ("depo(hops=0)", "depo.hops: 0 is less than 1"),
        ("depo(questions=0)", "depo.questions: 0 is less than 1"),
        ("depo(shortest=3, longest=2)", "depo.longest: 2 is less than 3"),
        ("brevo(shortest=0)", "brevo.shortest: 0 is less than 1"),
        ("brevo(nodes=7, letters=2, longest=2)", "brevo.letters: 2 make 6 names, fewer than 7 nodes"),
    ],
)
def test_impossible_fields_are_refused(text, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        AlgorithmicTask.parse(text)
