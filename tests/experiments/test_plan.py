"""What a plan says to type."""

import json
import re
import shlex
import sys

import jax
import pytest

from experiments import cli
from experiments.finetune import of_text
from experiments.language_model import Command
from experiments.plan import COMMANDS, _check_left_to_search, _show_search, main, presets, training
from experiments.plan import Command as PlanCommand
from transformer import pretrained
from transformer.analysis.hardware import HARDWARE
from transformer.analysis.plan import plan
from transformer.analysis.search import Found
from transformer.core.errors import ConfigError
from transformer.mixers.attention.backends import Fused
from transformer.models.stack import Scanned
from transformer.objectives.chunked import ChunkedNextToken
from transformer.runs.mesh import MeshConfig
from transformer.runs.presets import preset

FLAGS = """tiny --model.mixer.backend fused --objective chunked_next_token(chunk=16) --model.max-length 64
    --model.no-scale-residual-init --batch-size 4 --model.dtype bfloat16 --model.norm rmsnorm --hardware a100"""


def test_the_command_of_a_plan_trains_what_was_planned():
    asked = cli.parse(PlanCommand, COMMANDS, FLAGS.split())
    mesh = MeshConfig(replica=1, data=2, fully_sharded=True)
    planned, _ = plan(preset("tiny").replace({"model.vocab_size": 65}), MeshConfig(data=1), jax.devices()[:1])
    words = shlex.split(training(asked, Found(mesh, Scanned(remat="dots"), 2, planned)))
    assert words[:3] == ["transformer", "train", "tiny"]
    assert "--hardware" not in words
    command = cli.parse(Command, {"tiny": cli.extend(preset("tiny"), Command)}, words[2:])
    assert command.mesh == MeshConfig(data=2, fully_sharded=True)
    assert command.accumulation == 2
    assert command.model == asked.model.replace(layers=Scanned(remat="dots"))
    assert command.model == command.model.replace({"mixer.backend": Fused()})
    assert (command.batch_size, command.objective) == (4, ChunkedNextToken(chunk=16))


def test_a_published_model_is_planned_from_its_config_alone(tmp_path):
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 50,
    }
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **sizes}))
    words = ["--from", str(tmp_path), "--model.max-length", "16"]
    command = cli.parse(PlanCommand, presets(words), words)
    joined = [f"--from={tmp_path}", "--model.max-length=16"]
    assert cli.parse(PlanCommand, presets(joined), joined) == command
    assert (command.run.model.d_model, command.run.model.num_layers, command.run.model.max_length) == (64, 3, 16)
    planned, _ = plan(command.run, MeshConfig(data=1), jax.devices()[:1])
    made = training(command, Found(MeshConfig(replica=1, data=2), Scanned(remat="dots"), 1, planned))
    words = shlex.split(made)
    assert words[:5] == ["transformer", "train", "finetune", "--from", str(tmp_path)]
    default = of_text(pretrained.load_config(tmp_path), str(tmp_path))
    trained = cli.parse(type(default), {"text": default}, words[3:])
    assert trained.model == command.run.model.replace(vocab_size=50, layers=Scanned(remat="dots"))
    assert (trained.steps, trained.batch_size, trained.learning_rates) == (command.steps, command.batch_size, (1e-4,))


def test_the_table_of_a_search_is_whole_where_the_output_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    planned, _ = plan(preset("tiny").replace({"model.vocab_size": 65}), MeshConfig(data=1), jax.devices()[:1])
    found = [Found(MeshConfig(replica=1, data=1024, model=8, fully_sharded=True), Scanned(remat="full"), 16, planned)]
    _show_search(preset("tiny"), found, HARDWARE["v5e"], 8192)
    said = capsys.readouterr().out
    assert "…" not in said
    assert {"1024 × 8 sharded", "MFU"} <= {part.strip() for part in re.split(r"\s{2,}", said)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["tiny", "--topology", "v5e"], "topology: 'v5e' is not of the form v5e:2x4"),
        (["tiny", "--hardware", "h10"], "hardware: unknown 'h10'; did you mean 'h100'?"),
        (["tiny", "--topology", "v5e:2x2", "--hardware", "h100"], "hardware: h100, and --topology v5e:2x2 has its own"),
        (["tiny", "--model.norm", "rmsnrm"], "model.norm: unknown name 'rmsnrm'; did you mean 'rmsnorm'?"),
    ],
)
def test_wrong_words_are_one_line(flags, message):
    with pytest.raises(ConfigError) as error:
        cli.parse(PlanCommand, COMMANDS, flags)
    assert message in str(error.value)


@pytest.mark.parametrize(("out", "why"), [("nowhere/plan.json", "is in no folder that is there"), (".", "is a folder")])
def test_figures_have_a_place_before_anything_is_planned(out, why, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plan", "tiny", "--out", out])
    with pytest.raises(ConfigError, match=rf"^out: {out} {why}$"):
        main()


CHOSEN = ["accumulation=8", "model.layers.remat=full", "mesh.fully_sharded", "mesh.data=2"]


@pytest.mark.parametrize("layers", ["scanned", "unrolled"])
def test_a_search_keeps_the_kind_of_layers(layers):
    for name in ("llama-8b", "gpt2-124m"):
        _check_left_to_search(cli.parse(PlanCommand, COMMANDS, [name, "--search", "--model.layers", layers]))


def test_a_search_is_of_one_replica(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plan", "tiny", "--search", "--topology", "v5e:2x2", "--mesh.replica=2"])
    with pytest.raises(ConfigError, match=r"^search: it plans one replica; leave --mesh\.replica out$"):
        main()


@pytest.mark.parametrize("flag", CHOSEN)
def test_what_a_search_chooses_is_not_given(flag, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plan", "tiny", "--search", "--topology", "v5e:2x2", f"--{flag}"])
    path = flag.partition("=")[0].replace("_", "-")
    with pytest.raises(ConfigError, match=rf"^search: it chooses --{path}; leave that out$"):
        main()


def test_a_program_that_its_compiler_refuses_for_memory_is_a_line(tmp_path, monkeypatch, capsys):
    """After the prediction; other errors of a compiler are what they are."""
    said = "RESOURCE_EXHAUSTED: Ran out of memory on HBM, temporaries (678.46G) exceed available HBM (95.74G).\nStack"

    def refuse(self, options=None):
        raise jax.errors.JaxRuntimeError(said)

    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)
    out = tmp_path / "plan.json"
    monkeypatch.setattr(sys, "argv", ["plan", "tiny", "--out", str(out), "--mesh.data", "2"])
    main()
    line = (
        "plan: it does not fit, says the compiler: Ran out of memory on HBM, temporaries (678.46G) exceed available HBM"
    )
    assert line in capsys.readouterr().out.replace("\n", " ")
    assert json.loads(out.read_text())["refused"].startswith(line[:40])
    said = "INTERNAL: something else"
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        main()


def test_devices_that_a_mesh_leaves_out_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.plan.compile_step", lambda *_: None)
    words = ["--topology", "cpu:2", "--mesh.replica", "1", "--mesh.data", "1", "--out", str(tmp_path / "plan.json")]
    monkeypatch.setattr(sys, "argv", ["plan", "tiny", *words])
    main()
    assert "1 of the 2 devices are used; --mesh.data takes more" in capsys.readouterr().out
