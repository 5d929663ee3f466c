"""The exam: its skills can be asked of its models, and its table says what was found."""

import re
import statistics

import numpy as np
import pytest

from experiments import cli, exam, shortcuts
from experiments.atlas import DOCS, EVIDENCE
from experiments.published_skills import PUBLISHED
from experiments.skills import MODELS, SKILLS, examination, fitted
from tests.study import made
from transformer.analysis.counts import parameter_count
from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.mixers.attention.attention import Attention
from transformer.mixers.recurrent.elementwise import MinGRU
from transformer.runs.tokenizers import SPECIAL
from transformer.study.study_queue import StudyQueue

BASELINE, *OTHERS = MODELS
SHARES = [(name, OTHERS[i :: len(SKILLS)]) for i, name in enumerate(SKILLS)]
"""Some models for each skill, and each model once."""


@pytest.mark.parametrize(("name", "others"), SHARES)
def test_a_laptop_skill_is_drawn_and_its_models_are_of_equal_size(name, others):
    study = examination(name, SKILLS[name], {model: MODELS[model] for model in (BASELINE, *others)})
    configs = study.configs(load_data(study.base.data))
    wanted, *sizes = (parameter_count(config.model) for config in configs.values())
    assert len(sizes) == len(others) > 0
    assert all(abs(size / wanted - 1) < 0.05 for size in sizes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_skill_fits_its_models(name):
    """Without its data, of which there is too much."""
    skill = PUBLISHED[name]
    study = examination(name, skill)
    tasks = [skill.task, *([] if skill.test is None else [skill.test])]
    assert all(task.symbols == skill.task.symbols for task in tasks)
    assert study.base.model.max_length == max(task.length for task in tasks)
    base = study.base.replace({"model.vocab_size": len(SPECIAL) + len(skill.task.symbols)})
    models = [base.replace({**study.recipe(arm), **changes}).model for arm, changes in study.arms.items()]
    assert len(models) >= len(MODELS) - 2
    assert parameter_count(models[0]) > 10 * base.model.d_model**2


@pytest.mark.parametrize(("start", "epochs"), [("MAD", 200), ("MQAR", 64), ("RegBench", 200), ("flip-flops", 1)])
def test_published_steps_are_the_epochs_of_the_paper(start, epochs):
    for run in (skill.changes for name, skill in PUBLISHED.items() if name.startswith(start)):
        a_step = run["batch_size"] / run["data.examples"]
        assert abs(run["steps"] * a_step - epochs) < 2 * epochs * a_step


def test_no_two_skills_share_their_files():
    names = [examination(name, skill).name for table in exam.BUDGETS.values() for name, skill in table.items()]
    assert len(set(names)) == len(names) == len(SKILLS) + len(PUBLISHED)


def test_hybrids_have_the_attention_of_the_skill_and_whole_turns():
    own = Attention(num_heads=8)
    found = fitted(MODELS, {"model.num_layers": 4, "model.mixer": own})
    hybrids = {name for name, model in MODELS.items() if "model.pattern" in model}
    assert hybrids
    assert all(own in found[name]["model.pattern"][0].values for name in hybrids)
    assert fitted(MODELS, {"model.num_layers": 3}).keys() == MODELS.keys() - hybrids
    assert fitted(MODELS, {}) == MODELS


def test_the_first_word_chooses_the_skills():
    def asked(*words):
        return cli.parse(exam.Command, exam.PRESETS, list(words))

    assert list(asked("published", "--skills", "RegBench", "MQAR, 64").studies) == ["RegBench", "MQAR_64"]
    assert list(asked("--skills", "addition").studies) == ["addition"]
    assert len(asked("published").studies) == len(PUBLISHED)
    assert asked().whole
    assert not asked("published").whole
    assert not asked("--skills", "addition").whole
    with pytest.raises(ConfigError, match="skills: unknown value 'RegBnch'; did you mean 'RegBench'"):
        asked("published", "--skills", "RegBnch")
    with pytest.raises(ConfigError, match="skills: unknown value 'RegBench'"):
        asked("laptop", "--skills", "RegBench")
    with pytest.raises(ConfigError, match="models: softmax alone"):
        asked("--models", "softmax")


@pytest.mark.parametrize(("word", "kept"), [("published", False), ("laptop", True)])
def test_what_is_published_is_kept_in_the_workdir_alone(word, kept, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("sys.argv", ["exam", word, "--workdir", str(tmp_path)])
    monkeypatch.setattr(StudyQueue, "restore", lambda self, archives: None)
    monkeypatch.setattr(StudyQueue, "run", lambda self, minutes: seen.append(self.archives))
    monkeypatch.setattr(exam, "write", lambda reports, folder: seen.append(folder))
    monkeypatch.setattr(exam, "archived", lambda archives: {})
    exam.main()
    assert seen == ([EVIDENCE / "exam", DOCS] if kept else [None, tmp_path / "some"])


def test_the_table_says_what_was_found(tmp_path):
    noise = np.array([1, -1, 2, -2, 1, -1, 2, -2]) / 100

    def report(name, **means):
        exact = {arm: mean + noise * sign for (arm, mean), sign in zip(means.items(), (1, 1, -1, 1), strict=False)}
        losses = {arm: np.ones(len(noise)) for arm in exact}
        return made.report(tmp_path / name, losses, exact=exact, metric="exact_match", margin=0.05)

    half = f"{2.3646 * statistics.stdev(noise) / len(noise) ** 0.5:.2f}"  # t of 7 degrees of freedom
    reports = {"a_b": report("a_b", softmax=0.5, much=0.9, less=0.1, same=0.5), "c": report("c", softmax=0.3, much=0.2)}
    text = exam.table(reports)
    assert "in the order of their means, where what is missing counts as 0, and *places*" in text
    assert text.splitlines()[-6:] == [
        "| model | mean | places | a b | c |",
        "| --- | --- | --- | --- | --- |",
        f"| much | 0.55 | 1–2 | **0.90 ± {half}** | *0.20 ± {half}* |",
        f"| softmax | 0.40 | 1–2 | 0.50 ± {half} | 0.30 ± {half} |",
        f"| same | 0.25 | 2–3 | 0.50 ± {half} | – |",
        f"| less | 0.05 | 3–4 | *0.10 ± {half}* | – |",
    ]
    assert "mean over 8 seeds" in text
    assert "better than softmax" in text
    assert "all of as many parameters as softmax" in text


def test_a_failed_run_counts_as_nothing_right(tmp_path):
    """So that a model is not better for what it has left."""
    losses, exact = np.array([1.0, np.inf, np.inf, np.inf]), {"softmax": np.full(4, 0.5), "much": np.full(4, 0.9)}
    report = made.report(tmp_path, {"softmax": np.ones(4), "much": losses}, exact=exact, metric="exact_match")
    rows = [line for line in exam.table({"a": report}).splitlines() if line.startswith(("| much", "| softmax"))]
    assert [row.split(" | ")[0] for row in rows] == ["| softmax", "| much"]
    assert re.search(r"\| \*?0\.2[23], 3 failed\*? \|", rows[1])


def test_the_table_does_not_call_models_equal_that_are_not(tmp_path):
    found = made.report(tmp_path, {"softmax": np.ones(4), "large": np.ones(4)})
    object.__setattr__(found.arms[1], "parameters", 2 * found.arms[0].parameters)
    assert "parameters" not in exam.table({"skill": found})


def test_a_model_of_ones_own_is_named_and_asked():
    command = exam.Command(models=("softmax", "mine: model.mixer=min_gru model.position=none"), skills=("recall",))
    arms = command.studies["recall"].arms
    assert dict(arms["mine"]) == {"model.mixer": MinGRU(), "model.position": None}
    with pytest.raises(ConfigError, match=r"^model\.mixer: unknown name 'min_gro'; did you mean 'min_gru'\?$"):
        exam.Command(models=("softmax", "mine: model.mixer=min_gro"))
    with pytest.raises(ConfigError, match=r"^models: two are called 'softmax'$"):
        exam.Command(models=("softmax", "softmax: model.mixer=min_gru"))
    with pytest.raises(ConfigError, match=r"^models: 'mine: model\.mixer=' is not of the form FIELD=VALUE"):
        exam.Command(models=("softmax", "mine: model.mixer="))


def test_what_answers_without_a_skill_is_the_last_row(tmp_path):
    """Of a + b that is held out, b + a is looked up where it was seen; a table has all products in two tokens."""
    reports = {
        name: made.report(tmp_path / name, {"softmax": np.ones(4), "much": np.ones(4)})
        for name in ("modular_sums", "products_in_s3_longer", "other")
    }
    text = exam.table(reports)
    data = load_data(examination("modular sums", SKILLS["modular sums"]).base.data)
    first, second = (data.validation["tokens"][:, place] for place in (0, 2))
    seen = {tuple(row) for row in data.train["tokens"][:, [0, 2]].tolist()}
    share = np.mean([pair in seen for pair in zip(second.tolist(), first.tolist(), strict=True)])
    assert f"| without the skill | – | – | {share:.2f} | 1.00 | – |" in text
    assert "modular sums: b + a looked up; products in s3 longer: a table of the last two symbols." in text


@pytest.mark.parametrize(
    ("shortcut", "before", "answer"),
    [
        (shortcuts.usual, "x", "b"),
        (shortcuts.usual_before, "a c c b", "c"),
        (shortcuts.next_unasked, "k1 v7 k2 v3 k3 v5 k1 v7 k3", "v3"),
        (shortcuts.usual_value, "k1 v7 k2 v3 k1 v7 k2", "v7"),
        (shortcuts.usual_missing, ". 3 1 . 3 1 3 = 3 3", "1"),
        (shortcuts.usual_missing, "3 1 = 3 1", "</s>"),
        (shortcuts.turned_round, "2 + 1 =", "a"),
        (shortcuts.turned_round, "2 1 + 1 0 = 1", "c"),
        (shortcuts.by_last_two, "z z 2 =", "b"),
        (shortcuts.usual_digit, "d v : 2 5 s w : 2 5 g v : 1 0 ? d v : 2", "5"),
    ],
)
def test_shortcuts_by_hand(shortcut, before, answer):
    training = [(("1", "+", "2", "="), "a"), (("x", "2", "="), "b"), (("y", "3", "="), "b")]
    training.append((tuple("10+21=1"), "c"))
    assert shortcut(training)(tuple(before.split())) == answer
