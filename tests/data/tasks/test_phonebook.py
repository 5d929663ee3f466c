"""The phone book: looked up in a dictionary of strings."""

import numpy as np
import pytest

from tests.data.tasks.checks import check_examples, words_of
from transformer.core.errors import ConfigError
from transformer.data.tasks.phonebook import PhoneBook


def read(task, words):
    """The book, and the names asked."""
    book, *questions = "".join(words).split("?")
    size = task.name_length + 1 + task.digits
    entries = dict(book[i : i + size].split(":") for i in range(0, len(book), size))
    return entries, [question.split(":")[0] for question in questions]


def looked_up(task, words):
    entries, asked = read(task, words)
    assert len(entries) == task.entries
    assert len(set(asked)) == len(asked) == task.queries
    answers = [None] * words.index("?")
    for name in asked:
        answers += [None] * (len(name) + 2) + list(entries[name])
    return answers


@pytest.mark.parametrize(
    "task",
    [PhoneBook(), PhoneBook(3, queries=3, name_length=2, digits=1), PhoneBook(26, name_length=1), PhoneBook(2, 2, 13)],
    ids=str,
)
def test_examples(task):
    check_examples(task, looked_up)


def test_names_numbers_and_questions_are_uniform():
    task = PhoneBook(3, name_length=2, digits=2)
    letters, digits, places = [], [], []
    for row in task.examples(np.random.default_rng(0), 2000)[0]:
        entries, (asked,) = read(task, words_of(task, row))
        places.append(list(entries).index(asked))
        letters += [ord(letter) - ord("a") for name in entries for letter in name]
        digits += [int(digit) for number in entries.values() for digit in number]
    for found, size in ((places, 3), (letters, 26), (digits, 10)):
        np.testing.assert_allclose(np.bincount(found, minlength=size) / len(found), 1 / size, atol=0.03)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entries": 2, "queries": 3}, "phone_book.entries: 2 is less than 3"),
        ({"queries": 0}, "phone_book.queries: 0 is less than 1"),
        ({"name_length": 0}, "phone_book.name_length: 0 is less than 1"),
        ({"name_length": 14}, "phone_book.name_length: 14 is more than 13"),
        ({"digits": 0}, "phone_book.digits: 0 is less than 1"),
        ({"entries": 27, "name_length": 1}, "phone_book.entries: 27, but there are 26 names of 1"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        PhoneBook(**fields)
