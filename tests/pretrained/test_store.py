"""Folders of published models: read and written whole, or refused with the names of what is wrong."""

import builtins
import dataclasses
import json
import re
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from transformer import pretrained
from transformer.activations.activation import GLU, ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.inference.quantize import quantize
from transformer.mixers.attention.backends import Chunked
from transformer.mixers.attention.projections import LearnedScale
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.models.build import build, pure_model
from transformer.models.config import ModelConfig
from transformer.models.images import PatchConfig
from transformer.models.stack import Scanned
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import LinearScaling, RoPE, YaRN
from transformer.pretrained.__main__ import lines_of_code, sizes
from transformer.pretrained.architecture import PRACTICE, Architecture, Row
from transformer.pretrained.architectures import ARCHITECTURES
from transformer.pretrained.bart import BART
from transformer.pretrained.bert import BERT, BERT_CLASSIFIER
from transformer.pretrained.deepseek_v3 import DEEPSEEK_V3
from transformer.pretrained.files import Stored
from transformer.pretrained.gemma3 import GEMMA3
from transformer.pretrained.gpt2 import GPT2
from transformer.pretrained.gpt_oss import GPT_OSS
from transformer.pretrained.layouts import stored_shape, to_ours, to_stored
from transformer.pretrained.llama import LLAMA
from transformer.pretrained.mixtral import MIXTRAL
from transformer.pretrained.modernbert import MODERNBERT
from transformer.pretrained.names import flat, listed
from transformer.pretrained.phi3 import PHI3
from transformer.pretrained.qwen2 import QWEN2
from transformer.pretrained.qwen3_moe import QWEN3_MOE
from transformer.pretrained.qwen3_next import QWEN3_NEXT
from transformer.pretrained.roberta import ROBERTA
from transformer.pretrained.roformer import ROFORMER
from transformer.pretrained.smollm3 import SMOLLM3
from transformer.pretrained.t5 import T5
from transformer.pretrained.vit import VIT
from transformer.pretrained.windows import KINDS
from transformer.pretrained.xlstm import XLSTM

safetensors = pytest.importorskip("safetensors.numpy")

SIZES = {"vocab_size": 11, "max_length": 6, "num_layers": 2, "d_model": 8}
SIZES |= {"mixer.num_heads": 2, "feed_forward.d_ff": 12}
CONFIG = LLAMA.base.replace(SIZES | {"mixer.num_kv_heads": 1, "mixer.head_dim": 6})


def parameters(config, dtype=np.float32):
    params, _ = split(build(config, key=jax.random.key(0)))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape).astype(dtype)), params)


@pytest.fixture
def folder(tmp_path):
    pretrained.save(tmp_path / "model", CONFIG, parameters(CONFIG))
    return tmp_path / "model"


def rewrite(folder, change):
    """The tensors of a folder, changed in place."""
    path = folder / "model.safetensors"
    tensors = safetensors.load_file(path)
    change(tensors)
    safetensors.save_file(tensors, path)


def refused(folder, match, **options):
    with pytest.raises(ConfigError, match=match) as caught:
        pretrained.load(folder, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("layout", "shapes", "stored"),
    [
        ("", [(3, 4)], (3, 4)),
        ("F D -> D F", [(3, 4)], (4, 3)),
        ("D [F] -> D F", [(3, 4), (3, 2)], (3, 6)),
        ("(H [n] K) D -> D (H n K)", [(3, 10), (3, 10), (3, 10)], (30, 3)),
        ("(G [n] K) -> (G n K)", [(20,), (10,)], (30,)),
        ("D C Y X -> (Y X C) D", [(12, 5)], (5, 3, 2, 2)),
        ("1 1 D -> D", [(7,)], (1, 1, 7)),
    ],
)
def test_layouts_read_both_ways(layout, shapes, stored):
    sizes = {"H": 2, "G": 2, "K": 5, "Y": 2, "X": 2}
    parts = [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes)]
    whole = to_stored(parts, layout, sizes)
    assert whole.shape == stored == stored_shape(shapes, layout, sizes)
    for part, back in zip(parts, to_ours(whole, layout, shapes, sizes), strict=True):
        np.testing.assert_array_equal(part, back)


def test_parts_in_turns_within_heads():
    """Query, key and value of the first head, then those of the second (GPT-NeoX)."""
    whole = np.arange(12)[:, None]
    parts = to_ours(whole, "(H [n] K) D -> D (H n K)", [(1, 4)] * 3, {"H": 2, "K": 2})
    assert [part.tolist() for part in parts] == [[[0, 1, 6, 7]], [[2, 3, 8, 9]], [[4, 5, 10, 11]]]


def test_an_axis_in_the_opposite_order():
    """Of the taps of two convolutions, stored as one, the last comes first."""
    whole = np.arange(6).reshape(2, 1, 3)
    layout, shapes = "[X] 1 ~W -> W X", [(3, 1), (3, 1)]
    parts = to_ours(whole, layout, shapes, {})
    assert [part.tolist() for part in parts] == [[[2], [1], [0]], [[5], [4], [3]]]
    np.testing.assert_array_equal(to_stored(parts, layout, {}), whole)


def test_several_files(tmp_path):
    """The same model, with the index that names the file of each tensor."""
    params = parameters(CONFIG)
    pretrained.save(tmp_path / "model", CONFIG, params, shard_bytes=500)
    files = sorted(p.name for p in (tmp_path / "model").glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": sum(leaf.nbytes for leaf in flat(params).values())}
    config, loaded = pretrained.load(tmp_path / "model")
    assert config == CONFIG
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_dtypes_are_kept_or_cast_when_asked(tmp_path, dtype):
    params = parameters(CONFIG, dtype)
    pretrained.save(tmp_path / "model", CONFIG, params)
    _, kept = pretrained.load(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"^dtype: 'bf16' is no dtype; did you mean 'bfloat16'\?$"):
        pretrained.load(tmp_path / "model", dtype="bf16")
    for none in ("int8", "bool", "uint8"):
        with pytest.raises(ConfigError, match=rf"^dtype: {none} is none of parameters, such as bfloat16"):
            pretrained.load(tmp_path / "model", dtype=none)
    _, cast = pretrained.load(tmp_path / "model", dtype=jnp.float32)
    _, small = pretrained.load(tmp_path / "model", dtype=jnp.bfloat16)
    for name, leaf in flat(kept).items():
        assert leaf.dtype == dtype
        assert flat(cast)[name].dtype == jnp.float32
        assert flat(small)[name].dtype == jnp.bfloat16
        np.testing.assert_array_equal(leaf.astype(jnp.float32), flat(cast)[name])
    logits = split(build(CONFIG, key=jax.random.key(0)))[1](kept, jnp.arange(6)[None])
    assert logits.dtype == jnp.float32
    assert np.isfinite(logits).all()


@pytest.mark.parametrize(("dtype", "name"), [(np.int8, "I8"), (np.bool_, "BOOL")])
def test_numbers_that_are_no_floats_are_not_parameters(folder, dtype, name):
    """Without the scales that some other file or field would have."""

    def change(tensors):
        wrong = "model.layers.1.self_attn.q_proj.weight"
        tensors[wrong] = tensors[wrong].astype(dtype)

    rewrite(folder, change)
    refused(folder, rf"model.layers.1.self_attn.q_proj.weight: its numbers are {name}, and F16, BF16, F32, F64 can be")


def test_layers_of_other_dtypes(folder):
    """One array cannot be both, so somebody has to say which."""

    def change(tensors):
        name = "model.layers.1.self_attn.q_proj.weight"
        tensors[name] = tensors[name].astype(np.float16)

    rewrite(folder, change)
    refused(folder, r"model.layers.1.self_attn.q_proj.weight: float16, and other layers are float32; give a dtype")
    assert flat(pretrained.load(folder, dtype="float32")[1])


def test_a_tied_table_may_be_stored_twice(tmp_path):
    """As a head of its own, which has to be equal."""
    config = CONFIG.replace({"head.tied": True})
    params = parameters(config)
    pretrained.save(tmp_path / "model", config, params)
    table = np.asarray(flat(params)["embedding", "table"])
    rewrite(tmp_path / "model", lambda tensors: tensors.update({"lm_head.weight": table.copy()}))
    np.testing.assert_array_equal(flat(pretrained.load(tmp_path / "model")[1])["embedding", "table"], table)
    rewrite(tmp_path / "model", lambda tensors: tensors.update({"lm_head.weight": table + 1}))
    refused(
        tmp_path / "model", r"lm_head.weight is not model.embed_tokens.weight, and this model has one table for both"
    )


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        (BERT, "cls.predictions.decoder.weight"),
        (ROBERTA, "lm_head.decoder.weight"),
        (ROFORMER, "cls.predictions.decoder.weight"),
    ],
    ids=["bert", "roberta", "roformer"],
)
def test_an_output_table_of_its_own_is_refused_of_a_masked_model(tmp_path, architecture, name):
    config = architecture.base.replace(SIZES | {"embedding.types": 2})
    params = parameters(config)
    pretrained.save(tmp_path / "model", config, params, architecture=architecture)
    table = np.asarray(flat(params)["embedding", "table"])
    rewrite(tmp_path / "model", lambda tensors: tensors.update({name: table.copy()}))
    np.testing.assert_array_equal(flat(pretrained.load(tmp_path / "model")[1])["embedding", "table"], table)
    rewrite(tmp_path / "model", lambda tensors: tensors.update({name: table + 1}))
    refused(tmp_path / "model", rf"{name} is not .*word_embeddings.weight, and this model has one table for both")


def test_wrong_tensors_are_refused_with_all_names(folder, monkeypatch):
    """Missing, surplus and mis-shaped ones in one message, and nothing is read."""

    def change(tensors):
        del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((12, 8), np.float32)
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(12, np.float32)
        tensors["lm_head.weight"] = np.zeros((12, 8), np.float32)

    rewrite(folder, change)
    monkeypatch.setattr(Stored, "read", lambda self: pytest.fail("read"))
    with pytest.raises(ConfigError) as caught:
        pretrained.load(folder)
    shapes, missing, surplus = str(caught.value).split("tensors ")[1].split("; ")
    assert missing == "missing: model.norm.weight, model.layers.1.mlp.up_proj.weight"
    more = "model.layers.0.self_attn.q_proj.bias, model.layers.2.mlp.up_proj.weight"
    assert surplus == f"not of this architecture: {more}"
    assert shapes == "of another shape: lm_head.weight [12, 8], not [11, 8]"


def test_another_number_of_experts_is_a_short_message(tmp_path):
    """The shape of the router, which says it, comes first; what differs in numbers alone is said once."""
    config = MIXTRAL.base.replace(SIZES | {"feed_forward.num_experts": 4, "num_layers": 30})
    pretrained.save(tmp_path / "model", config, parameters(config))
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_local_experts": 24}))
    gate = "model.layers.*.block_sparse_moe.gate.weight"
    with pytest.raises(ConfigError) as caught:
        pretrained.load(tmp_path / "model")
    said = str(caught.value)
    assert f"tensors of another shape: {gate} [4, 8], not [24, 8] (30); missing: " in said
    assert "model.layers.*.block_sparse_moe.experts.*.w1.weight (600)" in said
    assert len(said) < 600


def test_lists_of_names_are_short():
    names = [f"layers.{i}.weight" for i in range(5)] + ["a1", "a2", *(f"{c}.weight" for c in "bcdefgh")]
    assert listed(names) == "layers.*.weight (5), a1, a2, b.weight, c.weight, d.weight, e.weight, f.weight, and 2 more"
    assert listed(names[:4]) == ", ".join(names[:4])


SCALED = Architecture(
    names=("ScaledForCausalLM",),
    model_type="scaled",
    base=LLAMA.base.replace({"mixer.scale": LearnedScale()}),
    fields=LLAMA.fields,
    rows=(*LLAMA.rows, Row("blocks/attention/params/scale/scale", "model.layers.{layer}.self_attn.scale")),
)


def test_a_parameter_that_is_one_number(tmp_path):
    config = SCALED.base.replace(SIZES | {"mixer.num_kv_heads": 1, "mixer.head_dim": 6})
    params = parameters(config)
    pretrained.save(tmp_path / "model", config, params, architecture=SCALED)
    tensors = safetensors.load_file(tmp_path / "model" / "model.safetensors")
    assert tensors["model.layers.1.self_attn.scale"].shape == ()
    loaded_config, loaded = pretrained.load(tmp_path / "model", architecture=SCALED)
    assert loaded_config == pretrained.load_config(tmp_path / "model", architecture=SCALED) == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


OUT = "blocks/attention/out/kernel"


@pytest.mark.parametrize(
    ("ours", "layout", "match"),
    [
        (OUT, "", r"o_proj.weight: no layout says how it holds blocks/kinds/0/attention/out/kernel, \[8, 8\]"),
        ((OUT, "blocks/attention/out/bias"), "F D -> D F", "layout 'F D -> D F' does not fit .*kernel, .*bias, .* and"),
        (OUT, "F D -> D", "layout 'F D -> D' does not fit"),
        (OUT, "(Q F) D -> D (Q F)", "does not fit"),
        (OUT, "F D E -> D F E", "does not fit"),
        (OUT, "F D", "does not fit"),
        ((OUT, OUT), "F D -> D F", "does not fit"),
    ],
)
def test_layouts_that_do_not_fit_are_one_line(tmp_path, ours, layout, match):
    """A square matrix would be read transposed, so that all have to say how they are stored."""
    rows = (
        *(row for row in LLAMA.rows if row.ours != OUT),
        Row(ours, "model.layers.{layer}.self_attn.o_proj.weight", layout),
    )
    architecture = dataclasses.replace(LLAMA, rows=rows)
    config = LLAMA.base.replace(SIZES | {"mixer.bias": ("query", "key", "value", "out")})
    with pytest.raises(ConfigError, match=match) as caught:
        pretrained.save(tmp_path / "model", config, parameters(config), architecture=architecture)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    refused(folder, r"model.safetensors: damaged, or no safetensors")
    path.write_bytes(b"\x80\x04\x95 a pickle under another name")
    refused(folder, r"model.safetensors: damaged, or no safetensors")


def test_a_pointer_in_place_of_a_file(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    refused(folder, r"model\.safetensors: a pointer of Git LFS; git lfs pull brings the file$")


def test_a_pickle_is_never_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, r"pytorch_model.bin could run any code when read; only safetensors are")
    (folder / "pytorch_model.bin").unlink()
    refused(folder, r"no model.safetensors and no model.safetensors.index.json")


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ('{"weight_map": {"a": "gone.safetensors"}}', "missing gone.safetensors"),
        ('{"weight_map": {"a": "../elsewhere.safetensors"}}', "missing ../elsewhere.safetensors"),
        (f'{{"weight_map": {{"a": "{"x" * 5000}"}}}}', f"missing {'x' * 80}, which"),
        ('{"weights": {}}', "no index of files"),
        ("{", "is no JSON"),
    ],
    ids=["gone", "elsewhere", "long", "other", "no JSON"],
)
def test_an_index_of_what_is_not_there(folder, index, match):
    (folder / "model.safetensors.index.json").write_text(index)
    refused(folder, match)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"use_qk_norm": True, "zeta": 1}, r"config.json: not supported: use_qk_norm, zeta"),
        ({"num_hiden_layers": 3}, r"config.json: not supported: num_hiden_layers; did you mean 'num_hidden_layers'\?$"),
        (
            {"num_hiden_layers": 3, "alpha": 1},
            r"not supported: alpha, num_hiden_layers; did you mean 'num_hidden_layers'",
        ),
        ({"quantization_config": {"bits": 4}}, r"config.json: not supported: quantization_config$"),
        (
            {"architectures": ["LlamaModel"]},
            r"no architecture 'LlamaModel'; known: LlamaForCausalLM; give one with architecture=$",
        ),
        ({"hidden_act": "sillu"}, r"hidden_act: no 'sillu'; did you mean 'silu'"),
        (
            {"architectures": ["LlamaForCausalLMs"]},
            r"no architecture 'LlamaForCausalLMs'; did you mean 'LlamaForCausalLM'\?; give one with architecture=$",
        ),
        ({"architectures": None, "model_type": "mamba"}, r"no architecture 'mamba'"),
        ({"architectures": None, "model_type": None}, r"config\.json: it names no architecture; give one with"),
        (
            {"architectures": None, "model_type": None, "replicas": []},
            r"no architecture; it is a run's, which load_run reads$",
        ),
        (
            {"architectures": ["LlamaForCausalLM", 5]},
            r"'LlamaForCausalLM', 5\] is not a list of names",
        ),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, r"no rope_type 'longrope'"),
        ({"rope_parameters": {"rope_theta": 1e4, "mrope": 1}}, r"rope_parameters: not supported: mrope"),
        ({"num_attention_heads": 5, "num_key_value_heads": 2}, r"config.json: mixer.num_kv_heads: 2"),
        ({"hidden_size": "8"}, r"config.json: .*d_model.*"),
    ],
)
def test_what_a_config_cannot_say(folder, change, match):
    fields = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(fields))
    refused(folder, match)


def test_no_config(folder):
    (folder / "config.json").write_text("[1]")
    refused(folder, "holds no object with fields")
    (folder / "config.json").write_text("{")
    refused(folder, "is no JSON")
    (folder / "config.json").unlink()
    refused(folder, "no config.json")


def test_by_type_where_no_class_is_named(folder):
    fields = json.loads((folder / "config.json").read_text())
    del fields["architectures"]
    (folder / "config.json").write_text(json.dumps(fields))
    assert pretrained.load(folder)[0] == CONFIG


def test_a_name_on_the_hub_is_downloaded(folder, monkeypatch):
    """Its descriptions and its safetensors, nothing else; what is no name never reaches the library."""
    asked = mock.Mock(return_value=str(folder))
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=asked))
    assert pretrained.load("someone/tiny-model")[0] == CONFIG
    asked.assert_called_once_with("someone/tiny-model", allow_patterns=["*.json", "*.safetensors"])
    for name in ("a/b/c", "./gone"):
        with pytest.raises(ConfigError, match=f"no folder {name}, and no name on the hub"):
            pretrained.load(name)
    assert asked.call_count == 1
    asked.side_effect = OSError("no such name\nand many more lines")
    refused("a/b", "no folder a/b, and the hub answers: no such name$")
    asked.side_effect = OSError()
    refused("a/b", "the hub answers: OSError$")


def test_names_that_are_no_folders(tmp_path, monkeypatch):
    real = builtins.__import__

    def without_hub(name, *args, **kwargs):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    refused(tmp_path / "nowhere", "no folder .*nowhere; for a name on the hub, pip install huggingface_hub")


def test_rotary_positions_of_older_files():
    """Fields that stood by themselves before version 5 of the reference."""
    old = {"rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 3}}
    assert LLAMA.read_config(old).position == RoPE(base=500.0, scaling=LinearScaling(3.0))
    assert LLAMA.read_config({}).position == RoPE()
    with pytest.raises(ConfigError, match=r"'original_max_position_embeddings' is missing"):
        LLAMA.read_config({"rope_scaling": {"type": "yarn", "factor": 3}})
    new = LLAMA.write_config(CONFIG.replace(position=RoPE(base=7.0, scaling=LinearScaling(3.0))))
    assert LLAMA.read_config(new).position == RoPE(base=7.0, scaling=LinearScaling(3.0))


@pytest.mark.parametrize("architecture", [LLAMA, DEEPSEEK_V3, GEMMA3, MODERNBERT], ids=lambda each: each.model_type)
def test_two_scalings_of_rotary_positions_are_refused(architecture):
    """Whichever is read, the other one would be ignored."""
    plain = {"rope_type": "default"}
    newer = plain if architecture in (LLAMA, DEEPSEEK_V3) else dict.fromkeys(KINDS, plain)
    with pytest.raises(ConfigError, match=r"rope_scaling: .* differs from rope_parameters"):
        architecture.read_config({"rope_parameters": newer, "rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    read = architecture.read_config({"rope_parameters": newer, "rope_scaling": None})
    assert read == architecture.read_config({"rope_parameters": newer})


def test_names_of_older_files(tmp_path):
    """GPT-2 without its prefix and with its masks, BERT with gamma and beta and heads that nothing here reads."""
    config = GPT2.base.replace(SIZES)
    pretrained.save(tmp_path / "gpt2", config, parameters(config))

    def older(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = np.ones((1, 1, 6, 6), np.float32)

    rewrite(tmp_path / "gpt2", older)
    jax.tree.map(np.testing.assert_array_equal, pretrained.load(tmp_path / "gpt2")[1], parameters(config))

    config = BERT.base.replace(SIZES | {"embedding.types": 2})
    pretrained.save(tmp_path / "bert", config, parameters(config))

    def greek(tensors):
        for name in list(tensors):
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[new] = tensors.pop(name)
        tensors["bert.pooler.dense.weight"] = np.ones((8, 8), np.float32)
        tensors["cls.seq_relationship.weight"] = np.ones((2, 8), np.float32)

    rewrite(tmp_path / "bert", greek)
    jax.tree.map(np.testing.assert_array_equal, pretrained.load(tmp_path / "bert")[1], parameters(config))


def test_two_names_of_one_tensor_are_refused(tmp_path):
    """Whatever they hold, as one of them would be dropped, if it is read at all."""
    config = GPT2.base.replace(SIZES)
    pretrained.save(tmp_path / "gpt2", config, parameters(config))

    def unread(tensors):
        tensors["transformer.h.0.attn.bias"] = tensors["h.0.attn.bias"] = np.ones((1, 1, 6, 6), np.float32)

    def both(tensors):
        tensors["wte.weight"] = tensors["transformer.wte.weight"] + 1

    rewrite(tmp_path / "gpt2", unread)
    jax.tree.map(np.testing.assert_array_equal, pretrained.load(tmp_path / "gpt2")[1], parameters(config))
    rewrite(tmp_path / "gpt2", both)
    refused(tmp_path / "gpt2", r"two tensors are transformer\.wte\.weight, one of them (transformer\.)?wte\.weight$")


def test_a_tensor_stored_twice_is_one(tmp_path):
    """And two that should be one and differ are refused."""
    own = {"source_vocab_size": 11, "max_source_length": 6, "mixer.head_dim": 4, "head.scale": 8**-0.5}
    config = T5.base.replace(SIZES | own)
    pretrained.save(tmp_path / "t5", config, parameters(config))

    def again(tensors):
        tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"].copy()

    rewrite(tmp_path / "t5", again)
    jax.tree.map(np.testing.assert_array_equal, pretrained.load(tmp_path / "t5")[1], parameters(config))

    def another(tensors):
        tensors["encoder.embed_tokens.weight"] += 1

    rewrite(tmp_path / "t5", another)
    refused(tmp_path / "t5", "encoder.embed_tokens.weight is not shared.weight")


def test_what_a_killed_save_left_is_no_part_of_the_next(folder):
    params = pretrained.load(folder)[1]
    partial = folder.parent / ".again.partial"
    partial.mkdir()
    (partial / "model-00001-of-00002.safetensors").write_text("")
    pretrained.save(folder.parent / "again", CONFIG, params)
    assert sorted(path.name for path in (folder.parent / "again").iterdir()) == ["config.json", "model.safetensors"]
    assert not partial.exists()


def test_rows_that_nothing_reads_and_a_tensor_that_may_be_missing(tmp_path):
    """Zeros of the dtype of the others, written or read."""
    config = BART.base.replace(SIZES | {"source_vocab_size": 11, "max_source_length": 6})
    pretrained.save(tmp_path / "bart", config, parameters(config))

    def change(tensors):
        del tensors["final_logits_bias"]
        positions = tensors["model.decoder.embed_positions.weight"]
        assert positions.dtype == np.float32
        assert positions.shape == (8, 8)
        assert not positions[:2].any()

    rewrite(tmp_path / "bart", change)
    loaded, expected = flat(pretrained.load(tmp_path / "bart")[1]), flat(parameters(config))
    expected["logits", "output", "bias"] = np.zeros(11, np.float32)
    jax.tree.map(np.testing.assert_array_equal, loaded, expected)


def test_what_cannot_be_saved(tmp_path):
    params = parameters(CONFIG)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not empty"):
        pretrained.save(tmp_path, CONFIG, params)
    another = CONFIG.replace(position=RoPE(scaling=YaRN()))
    with pytest.raises(
        ConfigError, match=r"no architecture here; of LlamaForCausalLM, the nearest, it differs in position.scaling"
    ):
        pretrained.save(tmp_path / "a", another, params)
    with pytest.raises(ConfigError, match=r"no architecture 'LlamaForCausalML'; did you mean 'LlamaForCausalLM'"):
        pretrained.save(tmp_path / "a", CONFIG, params, architecture="LlamaForCausalML")
    with pytest.raises(ConfigError, match=r"no architecture here; of GPT2LMHeadModel, the nearest, it differs"):
        pretrained.save(tmp_path / "a", CONFIG, params, architecture="GPT2LMHeadModel")
    with pytest.raises(ConfigError, match=r"^pretrained: shapes are given in place of parameters; split\("):
        pretrained.save(tmp_path / "a", CONFIG, pure_model(CONFIG)[0])
    with pytest.raises(ConfigError, match=r"the parameters of several replicas are given; run\.params\(\)"):
        pretrained.save(tmp_path / "a", CONFIG, jax.tree.map(lambda a: a[None], params))
    with pytest.raises(ConfigError, match=r"not the parameters of the config: .*final_norm/params/scale"):
        pretrained.save(tmp_path / "a", CONFIG, {name: p for name, p in params.items() if name != "final_norm"})
    for bytes_ in (0, -1, "5GB"):
        with pytest.raises(ConfigError, match=rf"^shard_bytes: {bytes_!r} is not a positive number$"):
            pretrained.save(tmp_path / "a", CONFIG, params, shard_bytes=bytes_)
    with pytest.raises(ConfigError, match=r"^parameters in 8 bits are no array; take those from before quantize$"):
        pretrained.save(tmp_path / "a", CONFIG, quantize(params))
    with pytest.raises(ConfigError, match=r"^pretrained: parameters are int8, and bfloat16, float16, float32 can be"):
        pretrained.save(tmp_path / "a", CONFIG, jax.tree.map(lambda a: a.astype(np.int8), params))
    for more, said in (
        ({"hidden_size": 999}, "fields: they make another model; .* by the config"),
        ({"rms_norm_eps": 0.5}, "fields: they make another model; rms_norm_eps is .* by the config"),
        ({"eos_tokenid": 2}, ".*eos_tokenid"),
        ({"eos_token_id": {2}}, "fields: Object of type set is not JSON serializable"),
    ):
        with pytest.raises(ConfigError, match=said):
            pretrained.save(tmp_path / "a", CONFIG, params, fields=more)
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(ConfigError, match="no architecture here is a PatchConfig"):
        pretrained.save(tmp_path / "a", PatchConfig(), params)
    assert not (tmp_path / "a").exists()


def test_how_a_model_is_trained_does_not_say_what_it_is():
    """Dropout and the like are no part of an architecture; an activation is."""
    practice = dict.fromkeys(("dropout", "mixer.dropout", "feed_forward.dropout", "stochastic_depth"), 0.1)
    practice |= dict.fromkeys(("initializer", "embedding.initializer"), Normal(0.1))
    practice |= {"scale_residual_init": False, "scale_init_by_depth": True, "dtype": "bfloat16"}
    practice |= {"mixer.backend": Chunked(), "layers": Scanned()}
    assert set(practice) == set(PRACTICE)
    for path, value in practice.items():
        assert LLAMA.differences(CONFIG.replace({path: value})) == []
    open_sizes = dict.fromkeys(("mixer.num_kv_heads", "mixer.head_dim", "feed_forward.d_ff"))
    assert LLAMA.differences(CONFIG.replace(open_sizes)) == []
    other = {"feed_forward.activation": GLU(gate=ReLU()), "norm": RMSNorm(eps=1e-3)}
    assert LLAMA.differences(CONFIG.replace(other)) == []
    assert LLAMA.differences(CONFIG.replace(norm=RMSNorm(zero_centered=True))) == ["norm.zero_centered"]
    assert LLAMA.differences(BERT_CLASSIFIER.base) == ["ClassifierConfig"]
    assert isinstance(CONFIG, ModelConfig)


def test_an_architecture_is_short():
    """Config and table of names: the median under 60 lines of code."""
    assert lines_of_code('"""A docstring."""\n\n# a comment\nx = (\n    1,\n)\n') == 3
    assert statistics.median(lines for _, lines in sizes().values()) < 60


def test_the_page_has_the_lines_of_every_architecture():
    page, rows = (Path(__file__).parents[2] / "docs" / "pretrained.md").read_text(), []
    for classes, lines in re.findall(r"^\| [^|]* \| ([^|]*) \| (\d+) \|$", page, re.MULTILINE):
        own = [(file, count) for file, (names, count) in sizes().items() if f"`{names[0]}`" in classes]
        assert sum(count for _, count in own) == int(lines), own
        rows += [file for file, _ in own]
    assert sorted(rows) == sorted(sizes())


def test_fields_of_published_files_that_nothing_reads():
    """As gpt2-medium and SmolLM2 have them, and dumps of older versions."""
    assert GPT2.read_config({"n_special": 0, "predict_special_tokens": True}) == GPT2.read_config({})
    unused = {"is_llama_config": True, "rope_interleaved": False, "quantization_config": None, "pruned_heads": {}}
    assert LLAMA.read_config(unused | {"typical_p": 1.0, "torchscript": False}) == LLAMA.read_config({})
    with pytest.raises(ConfigError, match=r"^not supported: rope_interleaved$"):
        LLAMA.read_config({"rope_interleaved": True})


def test_null_is_not_the_same_as_nothing_where_published_code_tells_them_apart():
    small = {"hidden_size": 60, "num_attention_heads": 6}
    assert QWEN2.read_config(small | {"num_key_value_heads": None}).mixer.num_kv_heads is None
    with pytest.raises(ConfigError, match="32 key-value heads"):
        QWEN2.read_config(small)
    yarn = {"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 64}
    assert LLAMA.read_config(yarn).position.scaling.original_length == 64


@pytest.mark.parametrize(
    ("architecture", "name", "values"),
    [(GEMMA3, "layer_types", ["full_attention"]), (SMOLLM3, "no_rope_layers", [1, 0])],
    ids=["gemma3", "smollm3"],
)
def test_lists_have_a_value_for_each_layer(architecture, name, values):
    with pytest.raises(ConfigError, match=rf"^{name}: {len(values)} values for 4 layers$"):
        architecture.read_config({"num_hidden_layers": 4, name: values})
    assert architecture.read_config({"num_hidden_layers": 4, name: None}).num_layers == 4


def test_an_unknown_kind_of_layer_is_refused():
    with pytest.raises(ConfigError, match=r"^layer_types: no 'full_atention'; did you mean 'full_attention'\?$"):
        QWEN3_NEXT.read_config({"num_hidden_layers": 2, "num_experts": 0, "layer_types": ["mamba", "full_atention"]})


NEEDED = {"Qwen3MoeForCausalLM": {"norm_topk_prob": True}, "Qwen3NextForCausalLM": {"num_experts": 0}}
"""What a file of a class has to say."""
PARTIAL = {
    *("GPTNeoXForCausalLM", "PhiForCausalLM", "Phi3ForCausalLM", "PersimmonForCausalLM"),
    *("StableLmForCausalLM", "NemotronForCausalLM", "GlmForCausalLM", "Glm4ForCausalLM", "BambaForCausalLM"),
    *("Qwen3NextForCausalLM",),
}
"""Architectures whose published code reads which share of the features is rotated; the others rotate all."""


def test_a_share_of_rotated_features_is_kept_where_the_published_code_reads_one():
    kept = set()
    for architecture in ARCHITECTURES:
        name, rotary = architecture.names[0], [one for one in architecture.fields if "rope_parameters" in one.theirs]
        try:
            architecture.read_config({"partial_rotary_factor": 0.5, **NEEDED.get(name, {})})
        except ConfigError as error:
            kept |= {name} if "partial_rotary_factor" not in str(error) else set()
        else:
            kept |= {name} if rotary else set()
    assert kept == PARTIAL
    assert LLAMA.differences(CONFIG.replace(position=RoPE(fraction=1 / 3))) == ["position.fraction"]
    with pytest.raises(ConfigError, match=r"^partial_rotary_factor: 0\.5 is not supported, all features are rotated"):
        LLAMA.read_config({"partial_rotary_factor": 0.5})
    assert LLAMA.read_config({"rope_parameters": {"partial_rotary_factor": 1.0}}).position.fraction == 1


@pytest.mark.parametrize("architecture", [MIXTRAL, QWEN3_MOE, GPT_OSS], ids=lambda one: one.names[0])
def test_the_weight_of_a_single_expert_is_its_probability_here_and_1_there(architecture):
    needed = NEEDED.get(architecture.names[0], {})
    single = architecture.read_config(needed).replace({"feed_forward.top": 1})
    assert architecture.differences(single) == ["feed_forward.top"]
    with pytest.raises(ConfigError, match="num_experts_per_tok: 1 is not supported"):
        architecture.read_config(needed | {"num_experts_per_tok": 1})


def test_what_a_file_would_say_wrongly_is_a_difference():
    """A bias that its word does not stand for, positions that the published code cannot scale, sizes left open."""
    biased = VIT.read_config({"qkv_bias": False})
    assert biased.mixer.bias == ("out",)
    assert VIT.differences(biased) == []
    assert VIT.differences(biased.replace({"mixer.bias": ()})) == ["mixer.bias"]
    phi = PHI3.read_config({"hidden_size": 64, "num_attention_heads": 4})
    assert PHI3.differences(phi.replace({"position.scaling": LinearScaling(2.0)})) == ["position.scaling"]
    xlstm = XLSTM.read_config({})
    assert XLSTM.differences(xlstm.replace({"mixer.key_dim": None, "mixer.value_dim": None})) == []
    with pytest.raises(ConfigError, match=r"no architecture here; of .*, the nearest, it differs in"):
        pretrained.save("unused", CONFIG.replace(mixer=GatedDeltaNet(), position=None), {})


def test_the_special_tokens_of_a_vocabulary_that_are_not_said_are_none():
    """A class has ids of its own where a file says nothing."""
    written = PHI3.write_config(PHI3.read_config({"vocab_size": 50}))
    assert {written[f"{name}_token_id"] for name in ("bos", "eos", "pad")} == {None}
    assert "pad_token_id" not in BERT_CLASSIFIER.write_config(BERT_CLASSIFIER.base.replace(num_classes=2))
