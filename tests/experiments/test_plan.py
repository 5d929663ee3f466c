"""What a plan says to type."""

import argparse
import shlex

import jax

from experiments import cli
from experiments.language_model import Command
from transformer.analysis.needs import Found, plan
from transformer.analysis.plan import training
from transformer.mixers.attention.backends import Fused
from transformer.models.stack import Scanned
from transformer.objectives.chunked import ChunkedNextToken
from transformer.runs.mesh import MeshConfig
from transformer.runs.presets import preset


def test_the_command_of_a_plan_trains_what_was_planned():
    asked = argparse.Namespace(preset="tiny", fused=True, chunk=16, max_length=64, batch_size=4, dtype="bfloat16")
    mesh = MeshConfig(data=2, fully_sharded=True)
    planned, _ = plan(preset("tiny").replace({"model.vocab_size": 65}), MeshConfig(data=1), jax.devices()[:1])
    words = shlex.split(training(asked, Found(mesh, "dots", 2, planned)))
    assert words[:3] == ["transformer", "train", "tiny"]
    command = cli.parse(Command, {"tiny": cli.extend(preset("tiny"), Command)}, words[2:])
    assert command.mesh == mesh
    assert (command.accumulation, command.batch_size, command.model.max_length) == (2, 4, 64)
    assert command.model.layers == Scanned(remat="dots")
    assert command.model == command.model.replace({"mixer.backend": Fused()})
    assert command.model.dtype == "bfloat16"
    assert command.objective == ChunkedNextToken(chunk=16)
