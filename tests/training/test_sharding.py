"""One program over many devices is the program on one; each device holds what the tables say."""

import functools
import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import jax
import pytest

from transformer.core import modules as pure
from transformer.core.arrays import AXES
from transformer.core.errors import ConfigError
from transformer.core.folders import locked
from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Mixer
from transformer.models.build import build
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import PatchConfig, VisionConfig
from transformer.models.vectors import VectorConfig
from transformer.runs.config import Replica, RunConfig
from transformer.runs.mesh import MeshConfig, Shard
from transformer.runs.rules import Adafactor
from transformer.testing.check import refusals
from transformer.testing.options import FAMILIES, shipped
from transformer.testing.subject import small
from transformer.training import sharding
from transformer.training.program import make_program
from transformer.training.sharding import TENSOR_PARALLEL, make_mesh, parameter_axes

MESHES = ("data", "fully sharded", "tensor", "all")
CASES = {
    "decoder": (*MESHES, "replicas", "context"),
    "encoder-decoder": (*MESHES, "all with context"),
    "experts": (*MESHES, "replicas", "all with context"),
    "recomputed": ("all", "data in pieces", "replicas in pieces"),
    "segments": ("all", "data in pieces", "context"),
    "dropout": ("data in pieces",),
    "experts in pieces": ("data in pieces",),
    "chunked": ("context", "all with context"),
    "ring": ("context", "all with context"),
    "uneven": ("context", "all with context"),
}
"""Meshes by model; those of a model share what one device gives."""


@pytest.fixture(scope="module")
def on_eight_devices(tmp_path_factory, testrun_uid):
    """Maps a model to what on_eight_devices.py reports of its meshes; one worker runs it for both."""
    folder = tmp_path_factory.getbasetemp().parent / testrun_uid

    @functools.cache
    def report(model, meshes=None):
        with locked(folder / model, wait=True):
            kept = folder / model / "report.json"
            if not kept.exists():
                script = Path(__file__).with_name("on_eight_devices.py")
                environment = os.environ | {"JAX_PLATFORMS": "cpu"}
                command = [sys.executable, str(script), model, *(meshes or CASES[model])]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                # The compiler says so where it gives up a sharding.
                assert "nvoluntary" not in done.stderr
                kept.write_text(done.stdout)
            return json.loads(kept.read_text())

    return report


@pytest.mark.parametrize(("model", "mesh"), [(model, mesh) for model, meshes in CASES.items() for mesh in meshes])
def test_every_mesh_gives_what_one_device_gives(on_eight_devices, model, mesh):
    """Losses and parameters after two steps of plain gradient descent."""
    found = on_eight_devices(model)[mesh]
    assert found["loss"] < 1e-5
    assert found["params"] < 1e-5


def test_rounded_kernels_give_what_one_device_gives_up_to_rounding(on_eight_devices):
    """That has kernels and gradients of float32; a step goes up to .5 times a gradient."""
    found = on_eight_devices("bfloat16", ("rounded",))["rounded"]
    assert found["loss"] < 2**-8
    assert 0 < found["params"] < 2**-8


def test_nothing_passes_between_replicas(on_eight_devices):
    """Eight replicas on eight devices: no collective operation in the compiled text."""
    for model in ("decoder", "experts"):
        assert on_eight_devices(model)["replicas"]["collectives"] == []
    assert on_eight_devices("decoder")["data"]["collectives"] == ["all-reduce"]


@pytest.mark.parametrize("model", ["decoder", "encoder-decoder", "experts"])
def test_devices_hold_what_the_tables_say(on_eight_devices, model):
    """Matrices are cut by the product of the axes, vectors are whole; moments lie as their parameters."""
    cut = {"data": (1, 1), "fully sharded": (8, 1), "tensor": (4, 1), "all": (4, 2)}
    for mesh, (parts, replicas) in cut.items():
        found = on_eight_devices(model)[mesh]
        expected = (found["matrices"] / parts + found["whole"] - found["matrices"]) / replicas
        assert found["bytes"][0] == expected
        assert expected <= found["bytes"][1] <= expected + 16  # and counters


def sizes(replica=1, data=1, model=1):
    kinds = (jax.sharding.AxisType.Auto,) * len(AXES)
    return jax.sharding.AbstractMesh((replica, data, 1, model), AXES, axis_types=kinds)


def axes_of(architecture: ModelConfig, mesh: MeshConfig, **counts):
    params = pure.split(pure.abstract(lambda key: build(architecture, key=key)))[0]
    axes = parameter_axes(mesh, architecture, params, sizes(**counts))
    leaves = jax.tree.leaves_with_path(axes, is_leaf=lambda a: isinstance(a, tuple))
    return {".".join(entry.key for entry in path): own for path, own in leaves}


BOTH = MeshConfig(model=2, fully_sharded=True)
WHOLE = (
    "*norm.params.*",
    "*norms.*.params.*",
    "*residual.params.*",
    "*residual_params.*",
    "*.weights.*",
    "*downsampling_params.*",
    "*position.*",
    "*[0-9].attention.params.*",
    "*.cross_attention.params.*",
    "*attention.parts.*_norm.*",
    "*attention.parts.head_scale.*",
    "*attention.parts.short_convolution.*",
    "*attention.parts.canon_*.*",
    "*attention.parts.memory.*",
    "*attention.parts.smear.*",
    "*attention.out.bias",
    "*feed_forward*.out.bias",
    "*feed_forward*.kernels.*",
    "*feed_forward*.router.*",
    "*feed_forward*.branch_biases.*",
    "*feed_forward*.out_bias",
    "*feed_forward*.router_params.*",
    "*embedding.projection*",
    "output.projection",
    "*embedding.types",
    "*embedding.gain",
    "output.gain",
    "head.*",
    "logits.*",
    "pooling_params.*",
    "hidden.*",
    "extra.*",
)
"""Parameters that are small, or that no product can be cut along: a new one is either here or has a rule."""


OTHERS = {
    "encoder-decoder": small(
        EncoderDecoderConfig, **{"vocab_size": 20, "share_embeddings": False, "mixer.bias": ("out",)}
    ),
    "classifier": small(ClassifierConfig, num_classes=3, registers=2, vocab_size=20),
    "vision": small(VisionConfig, num_classes=3, image_size=(8, 8, 1)),
    "patches": small(PatchConfig, image_size=(8, 8, 1)),
    "vectors": small(VectorConfig, features=3, outputs=2),
    "future": small(predict_ahead=2, vocab_size=20),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_of_every_option_fits_one_rule(family):
    """But those of a mixer of its own, which are whole."""
    mixers = [f"*.{mixer.name}.params.*" for mixer in shipped(Mixer) if not isinstance(mixer, Attention)]
    patterns = [*(rule.pattern for rule in TENSOR_PARALLEL), *WHOLE, *mixers]
    for option in FAMILIES[family]:
        causal = "decoder" not in refusals(option)
        axes = axes_of(small(**{"causal": causal, "vocab_size": 20} | option), BOTH, data=2, model=2)
        found = {path: [pattern for pattern in patterns if fnmatchcase(path, pattern)] for path in axes}
        assert not {path: own for path, own in found.items() if len(own) != 1}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.filterwarnings("ignore:.*is whole on all")
def test_every_parameter_of_every_kind_of_model_fits_one_rule(kind):
    axes_of(OTHERS[kind], BOTH, data=2, model=2)


def test_the_tables_by_hand():
    axes = axes_of(small(vocab_size=20), BOTH, data=2, model=2)
    block = "blocks.kinds.0"
    assert axes["embedding.table"] == ("model", "data")
    assert axes[f"{block}.attention.query.kernel"] == ("data", "model")
    assert axes[f"{block}.attention.out.kernel"] == ("model", "data")
    assert axes[f"{block}.feed_forward.branches.0.kernel"] == ("data", "model")
    assert axes["final_norm.params.scale"] == ()
    assert set(axes_of(small(vocab_size=20), MeshConfig(), data=2).values()) == {()}


def test_few_key_value_heads_stay_whole():
    axes = axes_of(small(**{"vocab_size": 20, "mixer.num_kv_heads": 2}), MeshConfig(model=4), model=4)
    assert axes["blocks.kinds.0.attention.key.kernel"] == ()
    assert axes["blocks.kinds.0.attention.query.kernel"] == (None, "model")


def test_a_vocabulary_that_does_not_divide_stays_whole_and_says_so():
    with pytest.warns(UserWarning, match=r"embedding.table is whole on all 2 devices"):
        axes = axes_of(small(**{"vocab_size": 19, "head.tied": True}), BOTH, data=2, model=2)
    assert axes["embedding.table"] == (None, "data")


@pytest.mark.parametrize(
    ("mesh", "counts", "message"),
    [
        (MeshConfig(model=3), {"model": 3}, r"mesh.model: 4 heads cannot be divided by 3"),
        (MeshConfig(fully_sharded=True), {"data": 5}, r"32 is not a multiple of 5 \(data\)"),
        (MeshConfig(rules=(Shard("*.quer.kernel"),)), {}, r"no parameter fits '\*.quer.kernel'"),
        (MeshConfig(rules=(Shard("final_norm*", (None, "data")),)), {"data": 2}, r"fewer axes than the rule"),
    ],
)
def test_what_cannot_be_cut_is_refused(mesh, counts, message):
    with pytest.raises(ConfigError, match=message):
        axes_of(small(vocab_size=20), mesh, **counts)


def test_a_parameter_with_two_rules_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(sharding, "TENSOR_PARALLEL", (*TENSOR_PARALLEL, Shard("*query*")))
    with pytest.raises(ConfigError, match=r"more than one rule fits the parameter .*query.*; give one in mesh.rules"):
        axes_of(small(vocab_size=20), MeshConfig(model=2), model=2)


def test_a_rule_of_ones_own_comes_first():
    mesh = MeshConfig(model=2, rules=(Shard("*final_norm*", ("model",)),))
    assert axes_of(small(vocab_size=20), mesh, model=2)["final_norm.params.scale"] == ("model",)
    assert Shard.parse("shard('*key*', axes=(None, 'model'))") == Shard("*key*", (None, "model"))


@pytest.mark.parametrize(
    ("mesh", "replicas", "batch", "message"),
    [
        (MeshConfig(model=4), 1, 8, r"mesh: … × … × 1 × 4 is more than the 2 devices"),
        (MeshConfig(replica=2), 3, 8, r"mesh.replica: 3 replicas cannot be divided by 2"),
        (MeshConfig(data=2), 1, 3, r"mesh.data: 3 sequences .* cannot be divided by 2"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(mesh, replicas, batch, message):
    with pytest.raises(ConfigError, match=message):
        make_mesh(mesh, replicas, batch)


def test_statistics_of_another_shape_are_whole(config):
    """Adafactor's rows and columns; its parameters are cut."""
    config = config.replace({"optimizer.rule": Adafactor()})
    program = make_program(config, [Replica()], MeshConfig(model=2))
    state = program.abstract_state
    for leaf in jax.tree.leaves(state.opt_state):
        assert set(leaf.sharding.spec[1:]) <= {None} or leaf.ndim == 1
    table = state.params["embedding"]["table"]
    assert tuple(table.sharding.spec) == ("replica", "model", None)


def test_what_cannot_be_rounded_is_refused():
    with pytest.raises(ConfigError, match=r"no kernel is gathered without mesh.fully_sharded"):
        MeshConfig(rounded=True)
    config = RunConfig(model=small())
    with pytest.raises(ConfigError, match=r"nothing is saved where model.dtype is float32"):
        make_program(config, [Replica()], MeshConfig(fully_sharded=True, rounded=True))


def test_the_table_of_experts_by_hand():
    axes = axes_of(small(vocab_size=20, feed_forward=TopKExperts(d_ff=24)), BOTH, data=2, model=2)
    assert axes["blocks.kinds.0.feed_forward.branches.0"] == ("model", "data", None)
    assert axes["blocks.kinds.0.feed_forward.out"] == ("model", None, "data")
    assert axes["blocks.kinds.0.attention.key.kernel"] == ("data", "model")
