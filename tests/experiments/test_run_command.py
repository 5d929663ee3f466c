"""Commands that train: going on with a folder, and looking without training."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import classification, cli, dry_run, run_command, vision
from experiments.language_model import Command
from transformer.analysis.counts import parameter_count, train_flops
from transformer.core.errors import ConfigError
from transformer.data.corpus import load_corpus
from transformer.data.dataset import load_data
from transformer.data.pictures import VisionRun
from transformer.data.regression import InContextRegressionConfig, InContextRegressionRun
from transformer.runs.config import Replica, RunConfig, grid
from transformer.runs.presets import PRESETS
from transformer.training.loop import train
from transformer.training.stored import load_run
from transformer.training.workdir import COMMAND

COMMANDS = {name: cli.extend(preset, Command) for name, preset in PRESETS.items()}


@pytest.fixture
def corpus_words(tmp_path):
    """Flags of a run that takes a moment."""
    (tmp_path / "text.txt").write_text("abcd" * 100)
    sizes = [
        "--model.d-model",
        "8",
        "--model.num-layers",
        "1",
        "--model.max-length",
        "8",
        "--model.mixer.num-heads",
        "2",
    ]
    return ["tiny", "--data.path", tmp_path / "text.txt", *sizes, "--steps", "2", "--optimizer.warmup-steps", "0"]


def parse(*words) -> Command:
    return cli.parse(Command, COMMANDS, [str(word) for word in words])


def test_a_folder_says_all_that_is_needed(run_folder):
    """In either form; flags change what the folder says."""
    run = load_run(run_folder)
    for words in (
        ("--resume", run_folder),
        ("--workdir", run_folder, "--resume"),
        ("--resume", f"--workdir={run_folder}"),
        (f"--resume={run_folder}",),
    ):
        command = parse(*words, "--steps", "20")
        assert cli.fields_of(command, type(run.config)) == dataclasses.replace(run.config, steps=20)
        assert (command.workdir, command.resume) == (run_folder, True)
        assert command.grid() == run.replicas == grid([3, 4], (1e-3, 1e-2))


def test_a_folder_says_what_the_command_was_told_besides(tmp_path, corpus_words):
    """What is shown, measured and sampled from; flags change that too, and a folder of before has the defaults."""
    told = ["--prompt", "ab", "--sample-tokens", "3", "--stride", "4", "--log", "tensorboard"]
    command = parse(*corpus_words, *told, "--workdir", tmp_path / "run")
    run_command.train_command(command.replace(log=()), RunConfig, run_command.load(command))
    again = parse("--resume", tmp_path / "run")
    assert (again.prompt, again.sample_tokens, again.stride, again.log) == ("ab", 3, 4, ())
    assert parse("--resume", tmp_path / "run", "--stride", "2").stride == 2
    changed = parse("--resume", tmp_path / "run", "--prompt", "dc")
    run_command.train_command(changed, RunConfig, run_command.load(changed))  # of a finished run, which trains nothing
    assert parse("--resume", tmp_path / "run").prompt == "dc"
    (tmp_path / "run" / COMMAND).unlink()
    assert parse("--resume", tmp_path / "run").stride is None


def test_a_preset_is_what_it_says(run_folder, tmp_path):
    """As is a folder without a run: the same command is given again from the start."""
    assert parse("tiny", "--resume", run_folder).model == PRESETS["tiny"].model
    assert parse("--workdir", tmp_path / "new", "--resume").model == PRESETS["nanogpt-cpu"].model


@pytest.mark.parametrize(
    ("name", "line"),
    [("gone", "resume: .*gone holds nothing that could be continued"), ("thesis", "are no grid")],
)
def test_a_folder_that_cannot_be_resumed(run_folder, tmp_path, name, line):
    if name == "thesis":
        config = load_run(run_folder).config.replace(steps=1)
        replicas = (Replica(seed=0), Replica(seed=1, weight_decay=0.5))
        train(config, replicas, load_corpus(config.data), tmp_path / name)
    with pytest.raises(ConfigError, match=line):
        parse("--resume", tmp_path / name)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("xyzw", r"a run of other data \(tokenizer: no token for 'x' at character 0; `--resume .*` alone goes on\)$"),
        ("abcdabcc", r"another run, which differs in data, run\.data\.path$"),
    ],
)
def test_a_run_of_other_data(run_folder, tmp_path, text, line):
    """Whether its tokenizer knows them or not."""
    (tmp_path / "other.txt").write_text(text * 100)
    command = parse("--resume", run_folder, "--data.path", tmp_path / "other.txt")
    with pytest.raises(ConfigError, match=f"^workdir: .* holds {line}"):
        run_command.train_command(command, RunConfig, run_command.load(command))


def test_a_sample_is_shown_as_it_is(run_folder, tmp_path, capsys):
    """Words in colons and brackets are no pictures and colours, and long lines are not folded."""
    run, sample = load_run(run_folder), "a :smile: [bold]b " * 9
    outcome = train(run.config, run.replicas, load_corpus(run.config.data), tmp_path / "a[bold]x")
    run_command.conclude(outcome, {"token_accuracy": outcome.accuracy}, sample)
    said = capsys.readouterr().out
    assert f"\n{sample}\n" in said
    assert said.endswith(f"everything is in {tmp_path / 'a[bold]x'}\n")


def test_another_kind_of_run(run_folder):
    with pytest.raises(ConfigError, match=r"holds a RunConfig, which this command does not train; `transformer train"):
        cli.parse(classification.Command, classification.PRESETS, ["--resume", str(run_folder)])


def test_a_kind_of_images_is_no_other_one(tmp_path):
    config = vision.CLASSIFY["digits"].replace({"model.num_layers": 1, "model.d_model": 8, "model.mixer.num_heads": 1})
    data = load_data(config.data)
    train(cli.fields_of(config.replace(steps=1), VisionRun), grid(1), data, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"holds a VisionRun, which this command does not train"):
        cli.parse(vision.Reconstruct, vision.RECONSTRUCT, ["--resume", str(tmp_path / "run")])


def test_a_kind_of_run_that_no_command_trains(tmp_path):
    data = InContextRegressionConfig(examples=20, validation_examples=8)
    train(InContextRegressionRun(data=data, steps=1, batch_size=4), grid(1), workdir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"does not train; T\.train\(…, when_not_empty='resume'\) goes on"):
        parse("--resume", tmp_path / "run")


def test_a_dry_run_says_what_would_be_trained(run_folder, tmp_path, monkeypatch, capsys):
    """What differs from the preset comes first, also inside a choice; nothing is trained and no folder made."""
    monkeypatch.setattr(run_command, "train", None)
    text = str(run_folder.parent / "text.txt")
    words = ["tiny", "--data.path", text, "--model.mixer.num-heads", "2", "--model.max-length", "8", "--replicas", "3"]
    command = parse(*words, "--workdir", tmp_path / "x", "--dry-run")
    with pytest.raises(SystemExit) as stop:
        run_command.train_command(command, RunConfig, run_command.load(command))
    assert not stop.value.code
    assert not (tmp_path / "x").exists()
    told = capsys.readouterr().out
    own, _, rest = told.partition("as in the preset:\n")
    assert own.splitlines()[1:] == [
        "  model.vocab_size  4",
        "  model.max_length  8",
        "  model.mixer       attention(num_heads=2)",
        f"  data.path         {text}",
    ]
    config = load_corpus(command.data).complete(cli.fields_of(command, RunConfig))
    step = 3 * 8 * train_flops(config.model)
    assert "  model.d_model  " in rest
    assert "model.mixer " not in rest
    assert f"  parameters  {parameter_count(config.model):,} each\n" in rest
    assert f"  a step      {step / 1e6:.3g} MFLOP\n  all steps   {300 * step / 1e9:.3g} GFLOP\n" in rest
    assert "  memory      " in rest
    assert "warm-up" not in rest.splitlines()[-1]
    short = dry_run.told(config.replace(steps=10), grid(1), config, load_corpus(command.data))
    assert short.splitlines()[-1].startswith("warm-up takes 100 steps of 10, so the learning rate never")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 "),
        (999, "999 "),
        (12_345, "12.3 k"),
        (2.5e12, "2.5 T"),
        (999_950, "1 M"),
        (3e22, "30 Z"),
        (3e28, "3e+04 Y"),
    ],
)
def test_numbers_have_prefixes(number, text):
    assert dry_run.scaled(number) == text


def test_what_an_encoder_needs_has_no_formula():
    data = load_data(PRESETS["masked"].data)
    config = data.complete(PRESETS["masked"])
    assert dry_run.costs(config, 1, data).keys() == {"parameters", "a step", "all steps"}


def test_a_run_that_diverged_ends_with_a_line_and_no_sample(run_folder, tmp_path, capsys):
    """And with exit code 1; result.json is written."""
    config = load_run(run_folder).config
    config = config.replace({"optimizer.warmup_steps": 0, "optimizer.clip_norm": None, "steps": 2})
    outcome = train(config, [Replica(learning_rate=1e30)], load_corpus(config.data), tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        run_command.conclude(outcome, {"token_accuracy": outcome.accuracy}, "garbage")
    assert stop.value.code == 1
    said = capsys.readouterr()
    assert said.err.endswith(f"error: every replica diverged; {tmp_path / 'run'} has the metrics\n")
    assert "garbage" not in said.out
    assert (tmp_path / "run" / "result.json").exists()


def test_what_was_measured_of_a_finished_run_stays(run_folder, tmp_path):
    config = load_run(run_folder).config
    for _ in range(2):
        outcome = train(config, [Replica()], load_corpus(config.data), tmp_path / "run", when_not_empty="resume")
        run_command.conclude(outcome, {"token_accuracy": outcome.accuracy}, "sample")
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        assert result["tokens_per_second"] > 0
    assert not np.isfinite(outcome.tokens_per_second)
