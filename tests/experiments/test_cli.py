"""Command lines: wrong input is one line and exit code 2, before anything compiles."""

import dataclasses
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from experiments import attention, cli, compare, language_model, mup, sample, structure
from experiments.language_model import Command
from experiments.study_command import StudyCommand, budgets, run_parsed, run_study
from transformer.core.errors import ConfigError
from transformer.core.files import WriteError
from transformer.inference.tokenwise import Greedy
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.pattern import Alternate
from transformer.models.stack import Scanned
from transformer.positions.absolute import Learned
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import PostNorm
from transformer.runs.mesh import MeshConfig, Shard
from transformer.runs.optimizer import ParameterGroup
from transformer.runs.presets import PRESETS
from transformer.runs.rules import Lion
from transformer.study.engines import DaskEngine, SchedulerEngine
from transformer.training.checkpoint import CheckpointError
from transformer.training.signals import Interrupted

COMMANDS = {name: cli.extend(preset, Command) for name, preset in PRESETS.items()}


def parse(*arguments):
    return cli.parse(Command, COMMANDS, list(arguments))


def test_presets_variants_and_nested_fields():
    command = parse("tiny", "--model.position", "rope(base=500000)", "--model.norm", "rmsnorm", "--seed", "7")
    assert command.model.position == RoPE(base=500_000.0)
    assert command.model.d_model == PRESETS["tiny"].model.d_model
    assert command.seed == 7
    assert parse("--learning-rates", "1e-3", "3e-3").learning_rates == (1e-3, 3e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tinny"], "unknown preset 'tinny'; did you mean 'tiny'?"),
        (["--stepz", "3"], "--stepz: there is no such option; did you mean --steps?"),
        (["--norm", "rmsnorm"], "--norm: there is no such option; did you mean --model.norm?"),
        (["--lerning-rate", "3"], "--lerning-rate: there is no such option; did you mean --optimizer.learning-rate?"),
        (["--qqq", "3"], "--qqq: there is no such option; --help shows those that there are"),
        (["--steps", "3", "tiny"], "tiny: a preset comes before all options"),
        (["--steps", "3", "tin"], "tin: there is no option for it"),
        (["--steps", "many"], "steps: 'many' is not a whole number"),
        (["--steps", "1e3"], "steps: '1e3' is not a whole number"),
        (["--log", "tensorbord"], "log: unknown name 'tensorbord'; did you mean 'tensorboard'?"),
        (["--optimizer.groups", "[grup('*')]"], "optimizer.groups: unknown name 'grup'; did you mean 'group'?"),
        (["--steps", "a: b"], "steps: 'a: b' is not a whole number"),
        (["--resume="], "resume: no folder is given"),
        (["--steps", "0"], "steps: 0 is not a positive number"),
        (["--model.norm", "rmsnrm"], "model.norm: unknown name 'rmsnrm'; did you mean 'rmsnorm'?"),
        (["--model.norm", "rmsnorm(eps='a')"], "model.norm.eps: 'a' is not float"),
        (["--model.position", "rope(bas=3)"], "rope has no field 'bas'; did you mean 'base'?"),
        (["--model.position", "__import__('os').abort()"], "is not of the form"),
        (["--model.mixer.num-heads", "3"], "3 heads do not divide d_model 128; the nearest that does is 2"),
        (["--model.mixer.num-kv-heads", "3"], "3 key-value heads do not divide 4 query heads"),
        (["--data.tokenizer", "chars"], "data.tokenizer: unknown name 'chars'; did you mean 'char'?"),
        (["--optimizer.rule", "lyon"], "unknown name 'lyon'; did you mean 'lion'?"),
        (["--optimizer.groups", "group('*', rat=2)"], "group has no field 'rat'; did you mean 'rate'?"),
        (["--model.mixer.num-head", "2"], "model.mixer.num_head: no field 'num_head'; did you mean 'num_heads'?"),
        (["--model.norm.epz", "3"], "model.norm.epz: no field 'epz'; did you mean 'eps'?"),
        (["--data.embedded", "topic"], "data.embedded: unknown value 'topic'; did you mean 'topics'?"),
        (["--data.validation-fraction", "2"], "data.validation_fraction: 2.0 is not between 0 and 1"),
        (["--resume", "--overwrite"], "give either --resume or --overwrite"),
        (["--replicas", "0"], "replicas: 0 is not a positive number"),
        (["--optimizer.clip-norm", "x"], "optimizer.clip_norm: 'x' is not a number"),
        (["--model.layers", "scanned(remat=ful)"], "model.layers.remat: unknown value 'ful'; did you mean 'full'?"),
        (["--model.norm", "layernorm(eps=abc)"], "model.norm.eps: abc is not a number, a text in quotes, or a list"),
        (["--optimizer.learning-rate", "-1"], "optimizer.learning_rate: -1.0 is negative"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message):
    with pytest.raises(ConfigError) as error:
        parse(*arguments)
    said = " ".join(str(error.value).split())
    assert message in said
    assert not re.match(r"Error parsing", said)
    assert "\n" not in str(error.value)


def test_a_word_where_there_is_no_preset():
    with pytest.raises(ConfigError, match=r"^swiglu: there is no option for it; --help shows those that there are$"):
        cli.parse(sample.Command, {"": sample.Command()}, ["swiglu"])


def test_a_shell_completes_flags(capsys):
    """By the line that it is told, which is no error."""
    with pytest.raises(SystemExit) as stop:
        parse("--tyro-print-completion", "bash")
    assert not stop.value.code
    assert "--model.d-model" in capsys.readouterr().out


def test_the_line_is_there_where_the_output_has_no_frames(capsys):
    """Output that is captured has no encoding in which they could be drawn."""
    with pytest.raises(ConfigError, match=r"^steps: 'many' is not a whole number$"):
        parse("--steps", "many")


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError, 2), (CheckpointError, 2), (WriteError, 74), (Interrupted, 75)]
)
def test_exit_codes(error, code, capsys):
    """One line, whatever went wrong."""

    def run():
        raise error("this and that")

    with pytest.raises(SystemExit) as stop:
        cli.main(run)
    assert stop.value.code == code
    assert capsys.readouterr().err.endswith("this and that\n")


@pytest.mark.parametrize(
    ("number", "handler"), [(signal.SIGTERM, signal.SIG_IGN), (signal.SIGINT, signal.default_int_handler)]
)
def test_a_signal_where_nothing_trains(number, handler, capsys):
    """Such as while the last picture is drawn."""
    before = signal.signal(number, handler)  # the processes of pytest-xdist pass over Ctrl-C
    try:
        with pytest.raises(SystemExit) as stop:
            cli.main(lambda: os.kill(os.getpid(), number))
        assert signal.getsignal(number) == handler
    finally:
        signal.signal(number, before)
    assert stop.value.code == 75
    assert capsys.readouterr().err.startswith("interrupted; what was saved stays")


def test_a_command_runs_in_any_thread(capsys):
    """Only the main one may say what a signal does."""
    thread = threading.Thread(target=lambda: cli.main(lambda: print("ran")))
    thread.start()
    thread.join()
    assert capsys.readouterr().out == "ran\n"


def test_output_that_nobody_reads_on_ends_quietly():
    """Such as that of `--help | head`."""
    code = "from experiments import cli; cli.main(lambda: print('x'))"
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


def test_engines():
    """Also by the address of a scheduler alone."""
    command = cli.parse(StudyCommand, budgets("x"), ["--engine", "tcp://10.0.0.1:8786"])
    assert command.engine == SchedulerEngine("tcp://10.0.0.1:8786")
    assert cli.parse(StudyCommand, budgets("x"), ["--engine", "dask(workers=2)"]).engine == DaskEngine(2)
    with pytest.raises(ConfigError, match="engine: unknown name 'slurm'; known: dask, local, scheduler"):
        cli.parse(StudyCommand, budgets("x"), ["--engine", "slurm"])


def test_every_experiment_explains_itself(capsys):
    for cls, presets in ((Command, COMMANDS), (StudyCommand, budgets("norm_position"))):
        with pytest.raises(SystemExit) as stop:
            cli.parse(cls, presets, ["--help"], description="What this is.")
        assert stop.value.code == 0
        said = capsys.readouterr().out
        assert "What this is." in said
        assert "Normalization method" in said


def test_choices_that_need_not_be_and_patterns():
    """`none` leaves a choice open; a part of a pattern is one word."""
    assert parse("--model.feed-forward.residual", "post").model.feed_forward.residual == PostNorm()
    both = parse("--model.feed-forward.residual", "post", "--model.feed-forward.residual", "none")
    assert both.model.feed_forward.residual is None
    pattern = parse("--model.pattern", "alternate('mixer.sparsity', [sliding_window(8), none])").model.pattern
    assert pattern == (Alternate("mixer.sparsity", (SlidingWindow(8), None)),)


def test_update_rules_and_groups():
    """A group is a word, as many as there are."""
    assert parse("--optimizer.rule", "lion(beta2=0.98)").optimizer.rule == Lion(beta2=0.98)
    words = ["group('embedding*', rate=0.1, decay=0)", "group('*kernel', 2)"]
    groups = (ParameterGroup("embedding*", rate=0.1, decay=0.0), ParameterGroup("*kernel", rate=2.0))
    assert parse("--optimizer.groups", *words).optimizer.groups == groups


def test_arms_are_chosen_by_name():
    """A wrong name has the nearest one."""
    command = budgets("norm_position", arms=("pre", "pst"))["laptop"]
    with pytest.raises(ConfigError, match="arms: no arm 'pst'; did you mean 'post'"):
        run_parsed("x", {"pre": {}, "post": {}}, command)


QUESTIONS = ["norm_method", "norm_position", "activation", "position", "attention", "structure"]


@pytest.mark.parametrize("name", [*QUESTIONS, "scaling_by_sqrt_d", "heads"])
@pytest.mark.parametrize("preset", ["laptop", "full"])
def test_every_arm_of_the_eight_questions_is_a_config(name, preset):
    """At either budget, before anything is compiled."""
    module = importlib.import_module(f"experiments.{name}")
    arms = module.ARMS if hasattr(module, "ARMS") else module.arms(64)
    base = budgets(name)[preset]
    assert len(arms) >= 4
    for changes in arms.values():
        base.replace({"model.vocab_size": 10, **changes})


@pytest.mark.parametrize("preset", mup.BUDGETS)
def test_the_arms_of_mup_share_the_smallest_width(preset):
    """At either budget: three widths, and of the smallest both have one learning rate for all parameters."""
    command = mup.BUDGETS[preset]
    configs = {name: command.replace(changes) for name, changes in mup.arms(command).items()}
    smallest = f"µP {command.model.d_model // 4}"
    assert len(configs) == 6
    assert configs[smallest].model.head.scale == 1
    assert all(group.rate == 1 for group in configs[smallest].optimizer.groups)


def run(*arguments):
    command = [sys.executable, "-W", "error", "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_wrong_input_exits_with_2_before_compilation(tmp_path):
    missing = run(
        "experiments.language_model", "--data.path", str(tmp_path / "no.txt"), "--workdir", str(tmp_path / "w")
    )
    assert missing.returncode == 2
    assert missing.stderr.strip() == f"error: data.path: no file {tmp_path / 'no.txt'}"
    (tmp_path / "short.txt").write_text("too short")
    short = run(
        "experiments.language_model", "--data.path", str(tmp_path / "short.txt"), "--workdir", str(tmp_path / "w")
    )
    assert short.returncode == 2
    assert len(short.stderr.strip().splitlines()) == 1
    assert "do not fit" in short.stderr
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("prompt", "a"), ("sample_tokens", 20), ("decoding", Greedy())], ids=lambda value: str(value)
)
def test_a_masked_model_continues_no_text(name, value):
    masked = cli.extend(PRESETS["masked"], Command)
    with pytest.raises(ConfigError, match=f"^{name}: a masked model continues no text; its sample fills hidden"):
        masked.replace({name: value})


def test_language_model_from_text_to_result(tmp_path):
    (tmp_path / "text.txt").write_text("abacabad" * 100)
    workdir = tmp_path / "run"
    shape = ["--model.num-layers", "1", "--model.d-model", "16", "--model.max-length", "8"]
    shape += ["--model.mixer.num-heads", "2"]
    arguments = [
        "tiny",
        *shape,
        "--data.path",
        str(tmp_path / "text.txt"),
        "--workdir",
        str(workdir),
        "--replicas",
        "2",
    ]
    done = run("experiments.language_model", *arguments, "--steps", "40", "--prompt", "a", "--sample-tokens", "20")
    assert done.returncode == 0, done.stderr
    result = json.loads((workdir / "result.json").read_text())
    assert {"validation_loss", "parameters", "steps", "seconds", "tokens_per_second", "reference"} <= result.keys()
    assert result["validation_loss"] < 1.4
    assert len(result["replicas"]) == 2
    assert len(result["loss_by_position"]) == 8
    sample = (workdir / "sample.txt").read_text()
    assert len(sample) == 21
    assert set(sample) <= set("abcd")
    assert (workdir / "loss.png").exists()
    again = run("experiments.language_model", *arguments, "--steps", "40")
    assert again.returncode == 2
    assert "is not empty; --resume continues it" in again.stderr


def test_a_folder_that_holds_something_else_is_refused_and_no_run_is_said_to_begin(tmp_path):
    (tmp_path / "study.json").touch()
    done = run("experiments.language_model", "tiny", "--workdir", str(tmp_path), "--resume")
    assert done.returncode == 2
    assert "begins" not in done.stderr
    assert "holds no config.json of a run" in done.stderr


def test_a_mesh_on_the_command_line():
    words = ["tiny", "--mesh.model", "2", "--mesh.fully-sharded", "--mesh.rules", "shard('*norm*', axes=('model',))"]
    mesh = cli.parse(Command, COMMANDS, words).mesh
    assert mesh == MeshConfig(model=2, fully_sharded=True, rules=(Shard("*norm*", ("model",)),))
    with pytest.raises(ConfigError, match=r"mesh.model: 0 is not a positive number"):
        cli.parse(Command, COMMANDS, ["tiny", "--mesh.model", "0"])


def test_none_and_bare_words():
    """As the help of the fields says: `none` is a number that there is not; a word needs no quotes."""
    numbers = ("--optimizer.clip-norm", "none", "--evaluate-every", "None")
    command = parse(*numbers, "--model.layers", "scanned(remat=dots)")
    assert command.optimizer.clip_norm is None
    assert command.evaluate_every is None
    assert command.model.layers == Scanned(remat="dots")
    assert parse("--optimizer.clip-norm", "2").optimizer.clip_norm == 2.0


def test_a_learning_rate_that_a_study_would_not_use(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["study", "--optimizer.learning-rate", "5"])
    with pytest.raises(ConfigError, match="and 5 would not be used"):
        run_study("s", {"a": {}, "b": {}}, budgets("s"), "a study")
    for main, words in (
        (compare.main, ["--choices", "model.norm=rmsnorm"]),
        (structure.main, []),
        (language_model.main, ["--learning-rates", "1e-3"]),
    ):
        monkeypatch.setattr(sys, "argv", ["study", "--optimizer.learning-rate", "5", *words])
        with pytest.raises(ConfigError, match="and 5 would not be used"):
            main()


def test_a_budget_that_two_questions_have_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["study", "--match", "flops"])
    with pytest.raises(ConfigError, match="match: both studies are asked"):
        structure.main()


def test_recall_keeps_what_the_command_says():
    preset = budgets("attention")["laptop"].replace({"model.position": RoPE()})
    said = {"seeds": 40, "learning_rates": (1e-3, 2e-3, 4e-3), "batch_size": 64}
    own = dataclasses.replace(preset.replace({"model.position": ALiBi()}, **said), preset=preset)
    found = attention.recall(own)
    assert {name: getattr(found, name) for name in said} == said
    assert (found.model.position, found.model.max_length) == (ALiBi(), 32)
    small = attention.recall(dataclasses.replace(preset, preset=preset))
    assert (small.seeds, small.learning_rates, small.batch_size) == (4, (1e-3, 3e-3), 32)
    assert small.model.position == Learned()
