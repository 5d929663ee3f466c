"""Texts from the folder of a run."""

import sys

import pytest

from experiments import sample
from transformer.core.errors import ConfigError
from transformer.inference.tokenwise import Greedy, Sample
from transformer.training.stored import load_run


@pytest.fixture
def said(monkeypatch, capsys):
    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["sample", *map(str, words)])
        sample.main()
        return capsys.readouterr().out

    return run


def test_texts_are_those_of_the_run(said, run_folder):
    """Text i is that of the seed + i; `--temperature` is that of the decoding."""
    run = load_run(run_folder)
    some = [run.generate("abac", num_tokens=9, strategy=Sample(temperature=3.0), seed=seed) for seed in (5, 6)]
    words = ("--tokens", "9", "--decoding", "sample(temperature=9.0)", "--temperature", "3", "--seed", "5")
    assert said(run_folder, "abac", "--num", "2", *words) == f"{some[0]}\n---\n{some[1]}\n"
    greedy = [run.generate("ab", num_tokens=5, strategy=Greedy(), replica=replica) for replica in (1, None)]
    assert said(run_folder, "ab", "--tokens", "5", "--decoding", "greedy", "--replica", "1") == f"{greedy[0]}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["abac", "--beyond", "refuse"], "max_length"),
        (["abac", "--decoding", "greedy", "--temperature", "1"], "temperature: no field 'temperature'"),
        (["abac", "--num", "0"], "num: 0 is not a positive number"),
        (["e"], "tokenizer: no token for 'e'"),
        ([], r"tokenizer: no token for '\\n'"),
        (["a", "b"], "sample: 3 words before the options; give a run's folder and a text"),
        (["a", "--replica", "7"], "replica: 7 of .*, which has 0 to 3"),
    ],
)
def test_what_cannot_be_is_one_line(said, run_folder, words, line):
    with pytest.raises(ConfigError, match=line):
        said(run_folder, *words)
