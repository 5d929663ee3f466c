"""Texts from the folder of a run."""

import sys

import pytest

import transformer as T
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


def test_the_folder_is_before_the_options(said, run_folder):
    with pytest.raises(ConfigError, match=r"^--num: before the options a run's folder is needed$"):
        said("--num", "2", run_folder, "abac")


def test_an_empty_line_is_no_token_of_words(said, tmp_path):
    data = T.AlgorithmicConfig(task=T.Sort(items=3), examples=40, validation_examples=4)
    model = T.ModelConfig(num_layers=1, d_model=8, mixer=T.Attention(num_heads=1), max_length=8)
    config = T.AlgorithmicRun(model=model, data=data, steps=1, batch_size=4)
    T.train(config, T.grid(1), workdir=tmp_path / "sort")
    with pytest.raises(ConfigError, match=r"^sample: its tokenizer makes no token of an empty line; give a text$"):
        said(tmp_path / "sort")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["abac", "--beyond", "refuse"], "max_length"),
        (["abac", "--decoding", "greedy", "--temperature", "1"], "temperature: greedy has none; use --decoding sample"),
        (["abac", "--seed", "4294967297"], r"^seed: 4294967297 is not in \[0, 2³¹\)"),
        (["abac", "--seed", "2147483647", "--num", "2"], r"^seed: 2147483648 is not in \[0, 2³¹\)"),
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
