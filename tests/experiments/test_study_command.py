"""Studies from the command line: designs made of arms, and what is refused."""

import dataclasses
import fcntl
import re
import sys

import pytest

from experiments import compare, gpt_to_llama, heads, norm_method, scaling
from experiments.dry_run import scaled
from experiments.study_command import StudyCommand, budgets, check_folder, overwrite, run_parsed, run_study
from transformer.analysis.counts import parameter_count, train_flops
from transformer.core.errors import ConfigError
from transformer.core.files import WriteError, write_sealed
from transformer.core.folders import LOCK
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE
from transformer.study.analyse import read_study
from transformer.study.cell import Cell
from transformer.study.designs import Design
from transformer.study.study import Study
from transformer.training.progress import duration

ARMS = {"start": {"model.d_model": 32}, "norm": {"model.norm": RMSNorm()}, "position": {"model.position": RoPE()}}


class Seen(Exception):
    """The study that a command would run."""


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The study that a command line asks for, without running it."""

    def run(self, workdir, **more):
        raise Seen(self, more)

    monkeypatch.setattr(Study, "run", run)

    def study(main, *words: str):
        monkeypatch.setattr(sys, "argv", ["study", *words, "--workdir", str(tmp_path)])
        with pytest.raises(Seen) as seen:
            main()
        return seen.value.args[0]

    return study


def test_choices_of_a_command_line_are_arms(asked):
    """Named or not, with values that have spaces, and combined by a design."""
    words = ("model.norm=rmsnorm(eps=1e-5)", "far: model.position='rope(base=500000)' model.mixer.num-kv-heads=2")
    study = asked(compare.main, "--choices", *words, "--model.d-model=32")
    assert study.arms == {
        "base": {},
        "model.norm=rmsnorm(eps=1e-5)": {"model.norm": RMSNorm(eps=1e-5)},
        "far": {"model.position": RoPE(base=500000), "model.mixer.num_kv_heads": 2},
    }
    assert (study.base.model.d_model, study.baseline_name) == (32, "base")
    assert asked(compare.main, "nanogpt-cpu", "--choices", *words).base.model.num_layers == 4
    newline = asked(compare.main, "--choices", r"data.document_separator=\n\n").arms  # as it is written
    assert newline[r"data.document_separator=\n\n"] == {"data.document_separator": r"\n\n"}
    crossed = asked(compare.main, "--choices", "a: model.num_layers=1", "b: model.dropout=0.1", "--design=factorial")
    assert crossed.arms["a + b"] == {"model.num_layers": 1, "model.dropout": 0.1}
    assert "interaction: a × b" in crossed.contrasts


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ((), "choices: none is given; --choices model.norm=rmsnorm compares that with the base"),
        (("rmsnorm",), "choices: 'rmsnorm' is not of the form FIELD=VALUE or NAME: FIELD=VALUE FIELD=VALUE"),
        (
            ("a: model.norm='x",),
            'choices: "a: model.norm=\'x" is not of the form FIELD=VALUE or NAME: FIELD=VALUE FIELD',
        ),
        (("model.nrm=rmsnorm",), "model.nrm: no field 'nrm'; did you mean 'norm'?"),
        (("seeds=3",), "seeds: no field 'seeds'"),
        (("learning_rates=3",), "learning_rates: no field 'learning_rates'"),
        (("model.norm=rmsnrm",), "model.norm: unknown name 'rmsnrm'; did you mean 'rmsnorm'?"),
        (("a: steps=9", "a: steps=8"), "choices: two are called 'a'"),
        (
            ("a: model.d_model=32 model.d-model=64",),
            "choices: 'a: model.d_model=32 model.d-model=64' gives model",
        ),
    ],
)
def test_a_choice_that_is_none_is_refused(asked, monkeypatch, choices, said):
    monkeypatch.setattr(sys, "argv", ["study", *(["--choices", *choices] if choices else [])])
    with pytest.raises(ConfigError, match=re.escape(said)):
        compare.main()


def test_the_design_of_a_command(asked):
    def main():
        run_study("s", ARMS, budgets("s"), "a study")

    plain = asked(main, "--seeds", "9", "--max-seeds", "36", "--minutes", "5", "--metric", "accuracy")
    assert list(plain.arms) == ["start", "norm", "position"]
    assert (plain.baseline_name, plain.looks, plain.minutes, plain.metric) == ("start", (9, 18, 36), 5.0, "accuracy")
    left = asked(main, "--design", "leave_one_out")
    assert list(left.arms) == ["all", "− norm", "− position", "base"]
    assert left.arms["− norm"] == {"model.d_model": 32, "model.position": RoPE()}
    assert left.baseline_name == "all"
    crossed = asked(main, "--design", "factorial", "--no-recipes", "--no-noise-floor")
    assert list(crossed.contrasts) == ["main effect: norm", "main effect: position", "interaction: norm × position"]
    assert not crossed.recipes
    assert not crossed.noise_floor
    some = asked(main, "--arms", "start", "norm")
    assert list(some.arms) == ["start", "norm"]


def test_a_study_with_a_design_of_its_own_has_no_other(tmp_path):
    command = StudyCommand(workdir=tmp_path, design="factorial")
    with pytest.raises(ConfigError, match="s: it has a design of its own; leave out --arms and --design"):
        run_parsed("s", Design({"a": {}, "b": {}}, "a"), command)
    with pytest.raises(ConfigError, match="no arm 'nrm'; did you mean 'norm'"):
        run_parsed("s", ARMS, StudyCommand(workdir=tmp_path, arms=("nrm",)))


def test_a_command_asks_once_more_with_fresh_seeds(tmp_path, monkeypatch, capsys):
    """In a folder beside its own, where a second command finds all runs there."""
    (tmp_path / "text.txt").write_text("abacabad" * 40)
    tiny = {"model.num_layers": 1, "model.d_model": 16, "model.mixer.num_heads": 2, "model.max_length": 8}
    fields = tiny | {"steps": 4, "batch_size": 4, "data.path": str(tmp_path / "text.txt")}
    own = {"seeds": 2, "learning_rates": (1e-3, 3e-3), "noise_floor": False, "confirm": True}
    command = StudyCommand(workdir=tmp_path / "asked").replace({**fields, "optimizer.warmup_steps": 0, **own})
    run_parsed("s", ARMS, dataclasses.replace(command, arms=("start", "norm")))
    said = capsys.readouterr().out
    assert (tmp_path / "asked_fresh" / "report.html").exists()
    assert f"pictures are in {tmp_path / 'asked_fresh'}" in said
    fresh = read_study(tmp_path / "asked_fresh").record
    assert fresh.name == "s_fresh"
    assert [(arm.seeds, len(arm.learning_rates)) for arm in fresh.arms.values()] == [([1000, 1001], 1)] * 2
    run_parsed("s", ARMS, dataclasses.replace(command, arms=("start", "norm"), resume=True))
    assert capsys.readouterr().out.count("there already") == 4
    other = dataclasses.replace(command.replace(steps=6), arms=("start", "norm"))
    (tmp_path / "asked").rename(tmp_path / "kept")
    with pytest.raises(ConfigError, match=r"workdir: .*asked_fresh is not empty"):
        run_parsed("s", ARMS, other)
    run_parsed("s", ARMS, dataclasses.replace(other, overwrite=True))
    assert "changed" not in capsys.readouterr().out
    assert not read_study(tmp_path / "asked_fresh").record.plan["changes"]


def test_shipped_studies_ask_what_they_say(asked):
    left = asked(gpt_to_llama.main)
    assert left.baseline_name == "all"
    assert {"− norm", "− position", "− head.tied", "base"} <= left.arms.keys()
    ladder = asked(scaling.main, "--widths", "32", "64")
    assert list(ladder.arms) == ["gpt @ d 32", "llama @ d 32", "gpt @ d 64", "llama @ d 64"]
    assert list(ladder.contrasts) == ["llama @ d 32", "llama @ d 64"]
    slices = asked(scaling.main, "--widths", "32", "48", "64", "--slices", "1e11")
    assert list(slices.arms) == ["d 32 @ 1e+11 FLOP", "d 48 @ 1e+11 FLOP", "d 64 @ 1e+11 FLOP"]
    assert asked(heads.main).fails_above == heads.FAILED
    norms = asked(norm_method.main)
    same = {path: value for path, value in norms.arms["layernorm, embeddings of dyt"].items() if path != "model.norm"}
    assert norms.recipe("dyt") == same
    assert norms.recipe("dyt, small embeddings") == {}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--widths", "32"], "widths: a power law needs at least 2 different ones, not 32"),
        (["--widths"], "widths: a power law needs at least 2 different ones, not none"),
        (["--widths", "32", "32", "48"], "widths: a power law needs at least 2 different ones, not 32 32 48"),
        (["--widths", "32", "48", "--slices", "1e11"], "widths: a parabola needs at least 3 different ones, not 32 48"),
        (["--slices", "nan"], "slices: nan is not a positive number"),
    ],
)
def test_what_no_law_can_be_fitted_to_is_refused_before_training(asked, words, line):
    with pytest.raises(ConfigError, match=f"^{line}$"):
        asked(scaling.main, *words)


def test_a_dry_run_says_what_all_of_the_study_would_be(tmp_path, monkeypatch, capsys):
    """Arms with their costs, runs, cells and time; nothing is trained and no folder made."""
    monkeypatch.setattr(Study, "run", None)
    (tmp_path / "text.txt").write_text("abacabad" * 40)
    tiny = {"model.d_model": 16, "model.num_layers": 1, "model.mixer.num_heads": 2, "model.max_length": 8}
    command = budgets("s", 10)["laptop"].replace(tiny | {"data.path": str(tmp_path / "text.txt")})
    how = {"dry_run": True, "workdir": tmp_path / "x", "seeds": 3, "max_seeds": 12, "learning_rates": (1e-3, 1e-2)}
    arms = {"start": {}, "wide": {"model.d_model": 32}, "long": {"steps": 20}, "again": {"steps": 10}}
    assert run_parsed("s", arms, dataclasses.replace(command, **how)) is None
    assert not (tmp_path / "x").exists()
    said = capsys.readouterr().out.splitlines()
    base = command.replace({"model.vocab_size": 4})
    step = train_flops(base.model) * base.batch_size
    wide = train_flops(base.model.replace(d_model=32)) * base.batch_size
    of_start = f"6 runs, {parameter_count(base.model):,} parameters, {scaled(6 * 10 * step)}FLOP, "
    assert said[0] == "s, to be trained:"
    assert said[1].startswith(f"  start                  {of_start}")
    assert said[2].endswith("B  model.d_model=32")
    assert f"6 runs, {parameter_count(base.model):,} parameters, {scaled(6 * 20 * step)}FLOP, " in said[3]
    assert said[4].startswith(f"  again                  {of_start}")  # its runs are those of start
    assert said[5].startswith(f"  baseline, other seeds  {of_start}")
    assert said[7:11] == [
        "  seeds           0 to 2, up to 12 where a verdict is open",
        "  learning rates  0.001, 0.01",
        "  runs            24 in 3 cells",
        f"  operations      {scaled(6 * (10 * step + 10 * wide + 20 * step + 10 * step))}FLOP",
    ]
    run_parsed("s", arms, dataclasses.replace(command, **how, confirm=True))
    again = capsys.readouterr().out.splitlines()[9:11]
    assert again == [
        "  runs            24 in 3 cells, and 12 of fresh seeds",
        f"  operations      {scaled(9 * (10 * step + 10 * wide + 20 * step + 10 * step))}FLOP",
    ]
    assert re.fullmatch(r"  time            at most \d+ (s|min|h) here, compilation aside", said[11])


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_what_is_refused_overwrites_nothing(tmp_path):
    """Neither where data or an arm is wrong, nor where the folder of the confirmation holds something else."""
    for folder in (tmp_path / "s", tmp_path / "s_fresh"):
        folder.mkdir()
        write_sealed(folder / "plan.json", {})
    (tmp_path / "text.txt").write_text("abacabad" * 40)
    (tmp_path / "s_fresh" / "thesis.tex").write_text("kept")
    fields = {"data.path": str(tmp_path / "text.txt"), "model.max_length": 8}
    command = StudyCommand(workdir=tmp_path / "s", overwrite=True).replace(fields)
    impossible = {"a": {}, "b": {"model.mixer.num_heads": 7}}
    for arms, changes, line in (
        ({"a": {}, "b": {"model.num_layers": 1}}, {"data.path": "nowhere.txt"}, "no file nowhere.txt"),
        (impossible, {}, "arm b: .* 7"),
        ({"a": {}, "b": {"model.num_layers": 1}}, {"confirm": True}, r"holds thesis\.tex"),
    ):
        with pytest.raises(ConfigError, match=line):
            run_parsed("s", arms, command.replace(changes))
        assert (tmp_path / "s" / "plan.json").exists()
    (tmp_path / "s_fresh" / "thesis.tex").unlink()
    with (tmp_path / "s_fresh" / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="s_fresh is in use by another process"):
            overwrite([tmp_path / "s", tmp_path / "s_fresh"])
    assert (tmp_path / "s" / "plan.json").exists()


def test_a_confirmation_that_fails_is_said(tmp_path, monkeypatch, capsys):
    """With exit code 1, also where nothing is left to compare."""
    (tmp_path / "text.txt").write_text("abacabad" * 40)
    tiny = {"model.num_layers": 1, "model.d_model": 16, "model.mixer.num_heads": 2, "model.max_length": 8}
    fields = tiny | {"steps": 4, "batch_size": 4, "data.path": str(tmp_path / "text.txt"), "optimizer.warmup_steps": 0}
    own = {"seeds": 2, "learning_rates": (1e-3,), "noise_floor": False, "confirm": True, "resume": True}
    command = StudyCommand(workdir=tmp_path / "asked").replace(fields | own)
    compute, failing = Cell.compute, ["position"]

    def sometimes(cell):
        if cell.folder.is_relative_to(tmp_path / "asked_fresh") and cell.title.startswith(tuple(failing)):
            raise WriteError("the disk is full")
        compute(cell)

    monkeypatch.setattr(Cell, "compute", sometimes)
    with pytest.raises(SystemExit) as stop:
        run_parsed("s", ARMS, command)
    assert stop.value.code == 1
    assert "2 of 3 arms are computed, 1 failed" in capsys.readouterr().out
    failing.append("start")
    (tmp_path / "asked_fresh").rename(tmp_path / "kept")
    with pytest.raises(SystemExit) as stop:
        run_parsed("s", ARMS, command)
    assert str(stop.value.code).startswith("error: s_fresh: nothing to compare with the baseline start")


def test_a_study_is_overwritten_and_nothing_else_is(tmp_path):
    """A folder with an entry `cells` may be anybody's; what is in it stays."""
    command = StudyCommand(workdir=tmp_path, overwrite=True)
    names = ("report.md", "forest.png", f"runs/{'0' * 20}.json", f"cells/{'0' * 16}/metrics.jsonl")
    for name in (*names, "cells/thesis.tex"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kept")
    with pytest.raises(ConfigError, match=r"plan\.json is missing"):
        check_folder(tmp_path, command)
    write_sealed(tmp_path / "plan.json", {})
    with pytest.raises(ConfigError, match=r"holds cells/thesis\.tex, which no run wrote"):
        check_folder(tmp_path, command)
    assert all((tmp_path / name).exists() for name in names)
    (tmp_path / "cells" / "thesis.tex").unlink()
    check_folder(tmp_path, command)
    overwrite([tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    (tmp_path / "report.md").write_text("")
    with pytest.raises(ConfigError, match="--resume continues it, --overwrite starts again"):
        check_folder(tmp_path, StudyCommand(workdir=tmp_path))
