"""What is predicted of a run is what XLA compiles."""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from transformer.analysis.compiled import Compiled, compile_step
from transformer.analysis.counts import train_flops
from transformer.analysis.hardware import GPUS, HARDWARE, Topology
from transformer.analysis.hlo import Collective, Work, work_of
from transformer.analysis.plan import plan
from transformer.analysis.search import fits, meshes, search
from transformer.core import modules as pure
from transformer.core.errors import ConfigError
from transformer.core.weights import LowRank
from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.backends import Fused, Ring
from transformer.mixers.attention.projections import NoProjections, TiedProjections
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.models.blocks import Macaron
from transformer.models.build import build
from transformer.models.stack import Scanned, Unrolled
from transformer.objectives.objective import NextToken
from transformer.objectives.tokens import MaskedToken, MultiToken
from transformer.positions.relative import TransformerXL
from transformer.runs.config import RunConfig
from transformer.runs.large_presets import LARGE_PRESETS
from transformer.runs.mesh import MeshConfig
from transformer.testing.subject import small


def test_products_in_loops_are_counted_as_often_as_they_run():
    """Seven times (3, 4) · (4, 4); XLA's own analysis counts one."""

    def run(x, w):
        return lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=7)[0]

    compiled = jax.jit(run).lower(np.ones((3, 4), np.float32), np.ones((4, 4), np.float32)).compile()
    assert work_of(compiled.as_text()).flops == 7 * 2 * 3 * 4 * 4


NEXT = NextToken()


def name_of(own):
    return str(own.model.mixer) + str(own.model.vocab_size)


def config(accumulation=1, objective=NEXT, **choices):
    model = small(**{"vocab_size": 32, "mixer.num_kv_heads": None, "feed_forward.d_ff": 64, **choices})
    return RunConfig(model=model, batch_size=4, steps=2, accumulation=accumulation, objective=objective)


@pytest.mark.parametrize("mesh", [MeshConfig(data=2, fully_sharded=True), MeshConfig(data=1, model=2)])
def test_predicted_state_and_operations_are_those_of_the_compiled_step(mesh):
    predicted, program = plan(config(layers=Scanned(remat="full")), mesh)
    compiled = compile_step(config(), program)
    assert 0 <= compiled.argument_bytes - predicted.parameter_bytes - predicted.optimizer_bytes < 500
    # What is computed again and not read is left out by XLA.
    assert 0.85 < compiled.work.flops / predicted.flops <= 1


RECURRENT = config().replace({"model.mixer": Mamba2(num_heads=4, num_key_heads=2, chunk=4), "model.position": None})


@pytest.mark.parametrize("own", [config(), config(**{"mixer.backend": Ring(block=4)}), RECURRENT], ids=name_of)
def test_devices_that_share_sequences_divide_all_products(own):
    """Those of kernels' gradients too, for which nothing of the stream is gathered."""
    predicted, program = plan(own, MeshConfig(data=1, context=2))
    assert compile_step(own, program).work.flops == pytest.approx(predicted.flops, rel=0.1)


AHEAD = config(vocab_size=33, predict_ahead=1, objective=MultiToken())


@pytest.mark.parametrize("own", [config(vocab_size=33), RECURRENT, AHEAD], ids=name_of)
@pytest.mark.filterwarnings("ignore:.*table is whole on all 2 devices")
def test_what_devices_of_a_layer_cannot_divide_each_of_them_computes(own):
    predicted, program = plan(own, MeshConfig(data=1, model=2))
    assert predicted.flops > 1.02 * train_flops(own.model, own.batch_size) / 2
    assert compile_step(own, program).work.flops == pytest.approx(predicted.flops, rel=0.02)


def test_both_networks_of_a_macaron_are_divided():
    """The first half has a name of its own."""
    own = config(block=Macaron())
    predicted, program = plan(own, MeshConfig(data=1, model=2))
    assert compile_step(own, program).work.flops == pytest.approx(predicted.flops, rel=0.02)


@pytest.mark.parametrize(
    ("choices", "objective"), [({"mixer.sparsity": SlidingWindow(2)}, NEXT), ({"causal": False}, MaskedToken())]
)
def test_all_keys_and_values_pass_between_devices_that_share_sequences(choices, objective):
    """Whatever a window hides, and of an encoder as of a decoder."""
    other = config(objective=objective, **choices)
    some, plain = (plan(own, MeshConfig(data=1, context=2))[0].context_bytes for own in (other, config()))
    assert some == plain > 0


@pytest.mark.parametrize("mesh", [MeshConfig(data=2), MeshConfig(data=2, fully_sharded=True)], ids=str)
@pytest.mark.parametrize("distinct", [1, 2])
def test_what_layers_share_passes_in_every_turn(mesh, distinct):
    """And in a part of one: three layers of two."""
    turns, own = (plan(config(num_layers=3, distinct_layers=n), mesh) for n in (distinct, None))
    sent = [compile_step(config(), program).received for _, program in (turns, own)]
    assert sent[0] == pytest.approx(sent[1], rel=0.05)
    assert turns[0].data_bytes == pytest.approx(own[0].data_bytes)


@pytest.mark.parametrize(("accumulation", "devices"), [(1, 1), (2, 1), (1, 2)])
def test_products_of_parameters_alone_are_made_once_for_a_piece(accumulation, devices):
    """Those of low-rank matrices; two devices make both of them."""
    own = config(accumulation, weights=LowRank(rank=8))
    predicted, _ = plan(own, MeshConfig(data=devices))
    rows = own.batch_size // accumulation // devices
    assert predicted.useful_flops == accumulation * train_flops(own.model, rows)


@pytest.mark.parametrize(
    "choices", [{"average_decay": 0.9}, {"model.memory_length": 16, "model.position": TransformerXL()}], ids=str
)
def test_a_mean_and_a_memory_are_part_of_the_state(choices):
    own = config().replace(choices)
    predicted, program = plan(own, MeshConfig(data=1))
    compiled = compile_step(own, program)
    assert 0 <= compiled.argument_bytes - predicted.parameter_bytes - predicted.optimizer_bytes < 600
    # Projections of earlier states that nobody reads are left out by XLA.
    assert 0.75 < compiled.work.flops / predicted.flops <= 1


def test_key_value_heads_that_cannot_be_divided_are_whole_on_each_device():
    for heads, share in {2: 0.5, 1: 1.0}.items():
        own = config(**{"mixer.num_kv_heads": heads})
        whole, divided = (plan(own, MeshConfig(data=1, model=model))[0].cache_bytes for model in (1, 2))
        assert divided == share * whole


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_gradient_passes_between_devices_once(pieces):
    """Data parallel: that of every parameter, after all pieces of the batch, and a few sums."""
    predicted, program = plan(config(accumulation=pieces), MeshConfig(data=2))
    sent = compile_step(config(accumulation=pieces), program).work.collective_bytes
    assert predicted.parameter_bytes <= sent[Collective("all-reduce", 2)] <= predicted.parameter_bytes + 100
    assert set(sent) == {Collective("all-reduce", 2)}


@pytest.mark.parametrize("choices", [{"model.dropout": 0.1}, {"model.feed_forward": TopKExperts()}], ids=str)
def test_the_gradient_of_every_piece_is_summed_where_rows_are_not_alone(choices):
    """Where pieces draw as one device draws, and where experts see all tokens of a piece."""
    predicted, program = plan(config(accumulation=2).replace(choices), MeshConfig(data=2))
    sent = compile_step(config(accumulation=2).replace(choices), program).work.collective_bytes
    assert sent[Collective("all-reduce", 2)] > 1.5 * predicted.parameter_bytes
    assert predicted.data_bytes == 2 * predicted.parameter_bytes


def test_what_dropout_keeps_is_kept():
    """Which of the features of each sublayer, and of the embedding, are dropped: a byte each."""
    drops, none = (plan(config().replace({"model.dropout": rate}), MeshConfig(data=1))[0] for rate in (0.1, 0.0))
    model = config().model
    places = config().batch_size * model.max_length * model.d_model * (2 * model.num_layers + 1)
    assert drops.activation_bytes - none.activation_bytes >= places


def test_recomputing_keeps_less():
    kept = [plan(config(layers=Scanned(remat=remat)), MeshConfig(data=2))[0] for remat in ("none", "dots", "full")]
    sizes = [one.activation_bytes for one in kept]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_meshes_of_a_number_of_devices():
    shapes = [(m.data, m.model, m.fully_sharded) for m in meshes(4)]
    assert shapes == [(4, 1, False), (4, 1, True), (2, 2, False), (2, 2, True), (1, 4, False)]
    alike = meshes(8, MeshConfig(replica=1, context=2, fully_sharded=True, rounded=True))
    assert [(m.data, m.model, m.fully_sharded) for m in alike] == shapes
    assert {m.context for m in alike} == {2}
    assert all(m.rounded == m.fully_sharded for m in alike)
    with pytest.raises(ConfigError, match=r"^mesh\.context: 4 devices cannot be divided by 3$"):
        meshes(4, MeshConfig(replica=1, context=3))


def test_what_passes_in_a_ring_by_hand():
    """Of what is summed and cut, the result is a part of what passes; a permutation names no groups."""
    sizes = {
        Collective("all-reduce", 4): 2 * 3 / 4,
        Collective("all-gather", 4): 3 / 4,
        Collective("all-gather", 0): 7 / 8,
        Collective("reduce-scatter", 4): 3,
        Collective("collective-permute", 0): 1,
    }
    for how, share in sizes.items():
        assert Compiled(0, 0, Work(collective_bytes=Counter({how: 1000})), 8).received == 1000 * share


def test_parameters_are_gathered_from_the_devices_that_share_a_batch():
    """Those that share a sequence have the same ones, and add their gradients up."""
    whole, cut = (plan(config(), MeshConfig(data=1, context=2, fully_sharded=own))[0] for own in (False, True))
    assert whole.data_bytes == cut.data_bytes == 2 * 1 / 2 * whole.gradient_bytes


@pytest.mark.parametrize(("name", "parameters"), [("gpt2-124m", 124.5e6), ("llama-8b", 8.03e9), ("llama-70b", 70.55e9)])
def test_the_large_presets_have_the_published_sizes(name, parameters):
    model = LARGE_PRESETS[name].model
    shapes = pure.split(pure.abstract(lambda key: build(model, key=key)))[0]
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == pytest.approx(parameters, rel=1e-3)


def test_the_roofline_is_the_slower_of_both():
    predicted, _ = plan(config(), MeshConfig(data=2))
    hardware = HARDWARE["h100"]
    assert predicted.seconds(hardware) >= predicted.flops / hardware.flops
    assert predicted.seconds(hardware, 450e9) - predicted.seconds(hardware, 0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h10:2x4", "topology: unknown hardware 'h10'; did you mean 'h100'?"),
        ("h100x8", "topology: 'h100x8' is not of the form KIND:SHAPE; did you mean h100:8?"),
        ("v5e", "topology: 'v5e' is not of the form v5e:2x4"),
        ("v5e:2*4", "topology: 'v5e:2*4' is not of the form v5e:2x4"),
    ],
)
def test_a_topology_is_named_or_refused(name, message):
    assert Topology.named("v5p:4x4x4").size == 64
    with pytest.raises(ConfigError) as refused:
        Topology.named(name)
    assert str(refused.value) == message


def test_what_is_found_fits_first_and_is_faster_first():
    """With memory for some; a piece more takes longer, because sums of gradients are read and written again."""
    hardware = HARDWARE["h100"]
    found = search(config(), hardware, jax.devices()[:2])
    some = sorted(one.plan.training_bytes for one in found)[len(found) // 2]
    small = dataclasses.replace(hardware, memory=some / 0.8)
    tried = []
    found = search(config(layers=Unrolled()), small, jax.devices()[:2], watch=lambda ways: tried.extend(ways) or ways)
    assert {(one.mesh, one.layers) for one in found} <= set(tried)
    fit = [fits(one.plan, small) for one in found]
    assert fit == sorted(fit, reverse=True)
    assert len(set(fit)) == 2
    seconds = [one.plan.seconds(small) for one in found if fits(one.plan, small)]
    assert seconds == sorted(seconds)
    assert {one.layers for one in found} == {Unrolled(remat=remat) for remat in ("none", "dots", "full")}
    alike = [one for one in found if one.layers == Unrolled() and one.mesh == MeshConfig(replica=1, data=2, model=1)]
    assert [one.accumulation for one in sorted(alike, key=lambda one: one.plan.seconds(small))] == [1, 2]


@pytest.mark.parametrize(("name", "dtype"), [("v5p:2", "float32"), ("h100:2", "bfloat16")])
def test_a_step_is_traced_for_the_devices_that_are_simulated(name, dtype):
    """Splash on a TPU and cuDNN on a GPU keep sums of rows, not scores, whether their compilers are there or not."""
    mixer = Attention(num_heads=2, head_dim=128, backend=Fused())
    fused, mesh = config(mixer=mixer, max_length=128, dtype=dtype), MeshConfig(replica=1, data=2)
    there, here = (
        plan(fused, mesh, jax.devices()[:2], platform)[0] for platform in (Topology.named(name).platform, None)
    )
    sequences = fused.batch_size // mesh.data
    scores = sequences * fused.model.num_layers * 2 * 128 * 128 * 4
    assert here.activation_bytes - there.activation_bytes > scores / 2


@pytest.mark.parametrize(
    "choices",
    [
        {"layers": Scanned(remat="none")},
        {"layers": Scanned(remat="full")},
        {},
        {"mixer.projection": NoProjections()},
        {"mixer.projection": TiedProjections()},
        {"memory_length": 6, "position": None},
    ],
    ids=lambda choices: "-".join(map(str, choices.values())),
)
def test_products_of_heads_are_divided_where_each_is_one(choices):
    """As on a TPU; elsewhere queries, keys and values, each as wide as the stream, are a single product."""
    own = config(**{"layers": Scanned(remat="dots")} | choices)
    planned = [plan(own, MeshConfig(data=1, model=2), jax.devices()[:2], platform)[0] for platform in ("tpu", "cpu")]
    assert planned[0].activation_bytes == planned[1].activation_bytes


def test_a_plan_says_what_the_kernel_of_the_device_does_not_take():
    fused = config(mixer=Attention(num_heads=2, head_dim=128, backend=Fused()), max_length=128, dtype="float32")
    with pytest.warns(UserWarning, match="cuDNN takes bfloat16 or float16, not float32; it is computed exactly"):
        plan(fused, MeshConfig(replica=1, data=1), jax.devices()[:1], "cuda")


@pytest.mark.parametrize(
    ("name", "asked"),
    [("v5e:3x7", ("v5e:3x7", "tpu")), ("h100:13", ("1x1x13", "cuda")), ("a100:3x2x4", ("6x1x4", "cuda"))],
)
def test_a_compiler_is_asked_for_the_devices_of_a_topology(monkeypatch, name, asked):
    """Those of GPUs by machines and the devices of each, and by what a GPU is."""
    given = []

    def describe(described, platform, **how):
        given.append((how.get("topology") or described, platform))
        if platform == "cuda":
            assert f"core_count: {GPUS[name[:4]].cores} " in how["target_config"]
        return SimpleNamespace(devices=[name] * 3)

    monkeypatch.setattr("transformer.analysis.hardware.topologies.get_topology_desc", describe)
    assert Topology.named(name).devices() == [name] * 3
    assert given == [asked]


def test_a_topology_without_its_compiler_is_refused(monkeypatch):
    def describe(*_, **how):
        raise NotImplementedError("topology not implemented for cuda\nhere")

    monkeypatch.setattr("transformer.analysis.hardware.topologies.get_topology_desc", describe)
    with pytest.raises(ConfigError, match=r"^topology: h100:2: topology not implemented for cuda$"):
        Topology.named("h100:2").devices()
