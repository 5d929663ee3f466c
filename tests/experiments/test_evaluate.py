"""The harness itself, on tasks of three kinds in files, and the command that runs it."""

import json
import math
import shutil
import sys

import jax
import numpy as np
import pytest

from experiments import evaluate
from transformer import pretrained
from transformer.core.errors import ConfigError
from transformer.core.folders import check_own
from transformer.core.modules import split
from transformer.data.tokenizers import CharTokenizer
from transformer.inference.evaluation import TextModel
from transformer.inference.tokenwise import Greedy
from transformer.models.language_model import LanguageModel
from transformer.pretrained import llama
from transformer.training.stored import load_run
from transformer.training.workdir import CONFIG, RUN_FILES

lm_eval = pytest.importorskip("lm_eval", reason="benchmarks need the extra: pip install '.[evaluation]'")
from lm_eval.tasks import TaskManager  # noqa: E402

CHOICES = [
    {"question": "ab", "choices": ["ac", "dd"], "answer": 0},
    {"question": "abac", "choices": ["dc", "ab"], "answer": 1},
    {"question": "ba", "choices": ["ba", "ca"], "answer": 1},
]
TEXTS = [{"text": "abacabadabacabad"}, {"text": "dab"}]
PROMPTS = [{"text": "abac"}, {"text": "ba"}]
COMMON = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}, cache_dir: {cache}}}
test_split: test
output_type: {name}
target_delimiter: ""
"""
TASKS = {
    "multiple_choice": (
        CHOICES,
        "doc_to_text: question\ndoc_to_target: answer\ndoc_to_choice: choices\n"
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n",
    ),
    "loglikelihood_rolling": (
        TEXTS,
        'doc_to_text: ""\ndoc_to_target: text\n'
        "metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]\n",
    ),
    "generate_until": (
        PROMPTS,
        "doc_to_text: text\ndoc_to_target: aba\ngeneration_kwargs: {until: [c], max_gen_toks: 6}\n"
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n",
    ),
}


@pytest.fixture
def tasks(tmp_path):
    """The files of the three tasks."""
    for name, (rows, text) in TASKS.items():
        lines = tmp_path / f"{name}.jsonl"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / f"{name}.yaml").write_text(COMMON.format(name=name, rows=lines, cache=tmp_path / "cache") + text)
    return [str(tmp_path / f"{name}.yaml") for name in TASKS]


@pytest.fixture
def said(monkeypatch, capsys):
    def run(*words) -> str:
        monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, words)])
        evaluate.main()
        return capsys.readouterr().out

    return run


def test_the_harness_counts_what_the_model_says(run_folder, tasks):
    """Of texts without spaces, which the run does not know; its model reads 8 tokens at once."""
    run = load_run(run_folder)
    manager = TaskManager(include_defaults=False)
    found = lm_eval.simple_evaluate(model=run.lm_eval_model(batch_size=2), tasks=tasks, task_manager=manager)
    answers = {name: [sample["resps"] for sample in found["samples"][name]] for name in TASKS}

    logs = [[run.score(row["question"] + c)[-len(c) :].sum() for c in row["choices"]] for row in CHOICES]
    np.testing.assert_allclose([[log for ((log, _),) in each] for each in answers["multiple_choice"]], logs, atol=1e-5)
    right = np.argmax(logs, 1) == [row["answer"] for row in CHOICES]
    assert found["results"]["multiple_choice"]["acc,none"] == pytest.approx(right.mean())
    assert 0 < right.mean() < 1

    long, short = (row["text"] for row in TEXTS)
    wholes = [run.score(long[:9]).sum() + run.score(long[7:])[-7:].sum(), run.score(short).sum()]
    np.testing.assert_allclose([log for ((log,),) in answers["loglikelihood_rolling"]], wholes, atol=1e-5)
    bits = -sum(wholes) / (len(long) + len(short)) / math.log(2)
    assert found["results"]["loglikelihood_rolling"]["bits_per_byte,none"] == pytest.approx(bits, abs=1e-5)

    made = [run.generate(row["text"], num_tokens=6, strategy=Greedy()) for row in PROMPTS]
    written = [text[len(row["text"]) :].split("c")[0] for row, text in zip(PROMPTS, made, strict=True)]
    assert [text for ((text,),) in answers["generate_until"]] == written
    assert found["results"]["generate_until"]["exact_match,none"] == np.mean([text == "aba" for text in written])


def test_the_command_prints_a_table_and_keeps_the_numbers(said, run_folder, tasks, tmp_path):
    folder = shutil.copytree(run_folder, tmp_path / "run")
    printed = said(folder, "--tasks", *tasks[:2], "--limit", "1", "--replica", "2")
    log = load_run(folder).score(TEXTS[0]["text"][:9], replica=2).sum()
    log += load_run(folder).score(TEXTS[0]["text"][7:], replica=2)[-7:].sum()
    kept = json.loads((folder / "evaluation.json").read_text())
    bits = kept["results"]["loglikelihood_rolling"]["bits_per_byte,none"]
    assert bits == pytest.approx(-log / 16 / math.log(2), abs=1e-5)
    assert f"{bits:.4f}" in printed
    assert kept["n-samples"]["multiple_choice"]["effective"] == 1
    assert kept["asked"]["replica"] == 2
    check_own(folder, CONFIG, RUN_FILES)


def test_a_published_model_is_asked_in_its_folder(said, tasks, tmp_path):
    tokenizer = CharTokenizer("abcd")
    config = llama.BASE.replace(vocab_size=4, d_model=16, num_layers=1, max_length=8)
    params, apply = split(LanguageModel(config, key=jax.random.key(0)))
    pretrained.save(tmp_path / "model", config, params)
    (tmp_path / "model" / "tokenizer.json").write_text(tokenizer.definition)
    said(tmp_path / "model", "--tasks", tasks[1], "--start", "3")
    logs = TextModel(apply, params, config, tokenizer, start=3).whole_log_likelihoods([row["text"] for row in TEXTS])
    kept = json.loads((tmp_path / "model" / "evaluation.json").read_text())["results"]["loglikelihood_rolling"]
    assert kept["bits_per_byte,none"] == pytest.approx(-sum(logs) / 19 / math.log(2), abs=1e-5)
    with pytest.raises(ConfigError, match=r"replica: .* holds a published model, which has none"):
        said(tmp_path / "model", "--tasks", tasks[1], "--replica", "0")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "tasks: which. give --tasks FILE.yaml"),
        (["--tasks", "arc_esay"], "tasks: arc_esay is no file, and no task of the harness"),
        (["more", "--tasks", "x.yaml"], "evaluate: 2 words before the options"),
    ],
)
def test_what_cannot_be_asked_is_one_line(said, run_folder, monkeypatch, words, line):
    """Without the harness' own tasks, whose many files take long to read."""
    monkeypatch.setattr("lm_eval.tasks.TaskManager", lambda **_: TaskManager(include_defaults=False))
    with pytest.raises(ConfigError, match=line):
        said(run_folder, *words)
