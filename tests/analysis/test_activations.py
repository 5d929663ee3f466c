"""Activations are read and changed by name, in every kind of program, and cost nothing where nobody looks."""

import functools
import re
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis import activations
from transformer.analysis.activations import activation_names, intervene, run_with_cache, stacked
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.generate import generate
from transformer.mixers.attention.backends import Chunked
from transformer.models.downsampling import Hourglass
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.pattern import Alternate
from transformer.models.stack import Scanned, Unrolled
from transformer.residuals.residual import PreNorm
from transformer.testing.subject import Subject, compiled, shaken, small, tokens_of

TOKENS = jnp.asarray(tokens_of(2))
LAYERS = {"unrolled": Unrolled(), "scanned": Scanned(), "recomputed": Scanned(remat="full")}


@functools.cache
def subject(kind: str = "decoder", **choices) -> Subject:
    if kind == "encoder_decoder":
        return Subject(small(EncoderDecoderConfig, **choices))
    return Subject(small(causal=kind == "decoder", **choices))


def inputs(kind: str) -> tuple:
    return (TOKENS[:, ::-1], TOKENS) if kind == "encoder_decoder" else (TOKENS,)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder_decoder"])
def test_the_logits_are_those_of_the_plain_pass_to_the_bit(kind, layers):
    own = subject(kind, layers=LAYERS[layers])
    expected = compiled(own.apply)(own.params, *inputs(kind))
    logits, _ = compiled(lambda *args: run_with_cache(own.apply, *args))(own.params, *inputs(kind))
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("layers", ["scanned", "recomputed"])
def test_scanned_activations_are_those_of_the_loop(layers):
    found, expected = (
        run_with_cache(one.apply, one.params, TOKENS)[1]
        for one in (subject(layers=LAYERS[layers]), subject(layers=Unrolled()))
    )
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, err_msg=name)


def test_names_and_shapes():
    own, (B, L, D, H, G, K, F) = subject(num_layers=1), (2, 8, 32, 4, 2, 8, 24)
    shapes = {name: value.shape for name, value in activation_names(own.apply, own.params, TOKENS).items()}
    assert shapes == {
        "blocks.0.resid_pre": (B, L, D),
        "blocks.0.attention_residual.input.scale": (B, L, 1),
        "blocks.0.attention.in": (B, L, D),
        "blocks.0.attention.k": (B, L, G, K),
        "blocks.0.attention.v": (B, L, G, K),
        "blocks.0.attention.q": (B, L, H, K),
        "blocks.0.attention.scores": (B, H, L, L),
        "blocks.0.attention.pattern": (B, H, L, L),
        "blocks.0.attention.z": (B, L, H, K),
        "blocks.0.attention.out": (B, L, D),
        "blocks.0.resid_attention": (B, L, D),
        "blocks.0.feed_forward_residual.input.scale": (B, L, 1),
        "blocks.0.feed_forward.in": (B, L, D),
        "blocks.0.feed_forward.pre": (B, L, F),
        "blocks.0.feed_forward.post": (B, L, F),
        "blocks.0.feed_forward.out": (B, L, D),
        "blocks.0.resid_post": (B, L, D),
        "final_norm.scale": (B, L, 1),
        "final_norm.out": (B, L, D),
    }


def test_both_sides_of_an_encoder_decoder_have_names():
    own = subject("encoder_decoder")
    found = run_with_cache(own.apply, own.params, *inputs("encoder_decoder"))[1]
    assert stacked(found, "encoder.blocks.*.attention.pattern").shape == (2, 2, 4, 8, 8)
    weights = stacked(found, "decoder.blocks.*.cross_attention.pattern")
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_activations_fit_together():
    own = subject()
    found = run_with_cache(own.apply, own.params, TOKENS)[1]
    for i in range(2):
        block = {name.removeprefix(f"blocks.{i}."): x for name, x in found.items() if name.startswith(f"blocks.{i}.")}
        after = block["resid_pre"] + block["attention.out"]
        np.testing.assert_allclose(after, block["resid_attention"], atol=1e-5)
        np.testing.assert_allclose(after + block["feed_forward.out"], block["resid_post"], atol=1e-5)
        v_BHSK = jnp.repeat(block["attention.v"], 2, axis=2).transpose(0, 2, 1, 3)
        z_BLHK = jnp.einsum("bhls,bhsk->blhk", block["attention.pattern"], v_BHSK)
        np.testing.assert_allclose(z_BLHK, block["attention.z"], atol=1e-5)


@pytest.mark.parametrize("layers", LAYERS)
def test_layers_of_several_kinds_keep_their_numbers(layers):
    pattern = Alternate("feed_forward", (None, FeedForward(d_ff=24), None))
    own = subject(layers=LAYERS[layers], pattern=(pattern,), num_layers=6)
    shapes = activation_names(own.apply, own.params, TOKENS)
    assert [name for name in shapes if name.endswith("feed_forward.out")] == [
        "blocks.1.feed_forward.out",
        "blocks.4.feed_forward.out",
    ]
    assert [name for name in shapes if name.endswith("attention.out")] == [
        f"blocks.{i}.attention.out" for i in range(6)
    ]


@pytest.mark.parametrize("layers", LAYERS)
def test_layers_between_see_fewer_vectors_and_keep_their_numbers(layers):
    own = subject(layers=LAYERS[layers], downsampling=Hourglass(), num_layers=4)
    shapes = activation_names(own.apply, own.params, TOKENS)
    streams = {name: value.shape[1] for name, value in shapes.items() if name.endswith("resid_post")}
    assert list(streams.items()) == [(f"blocks.{i}.resid_post", length) for i, length in enumerate((8, 4, 4, 8))]


@pytest.mark.parametrize("layers", LAYERS)
def test_an_intervention_changes_its_own_layer_alone(layers):
    own = subject(layers=LAYERS[layers], num_layers=3)
    changed = intervene(own.apply, {"blocks.1.attention.out": lambda x: 2 * x})
    before, after = (run_with_cache(apply, own.params, TOKENS)[1] for apply in (own.apply, changed))
    for name in ("blocks.0.attention.out", "blocks.0.resid_post", "blocks.1.resid_pre"):
        np.testing.assert_array_equal(before[name], after[name])
    np.testing.assert_allclose(after["blocks.1.attention.out"], 2 * before["blocks.1.attention.out"], rtol=1e-6)
    moved = after["blocks.1.resid_attention"] - before["blocks.1.resid_attention"]
    np.testing.assert_allclose(moved, before["blocks.1.attention.out"], atol=1e-5)
    assert np.abs(after["blocks.2.resid_pre"] - before["blocks.2.resid_pre"]).max() > 1e-3


@pytest.mark.parametrize("layers", LAYERS)
def test_a_run_patched_into_another_becomes_it(layers):
    own = subject(layers=LAYERS[layers])
    expected, clean = run_with_cache(own.apply, own.params, TOKENS)
    for name in ("blocks.0.resid_pre", "blocks.1.resid_pre"):
        patched = intervene(own.apply, {name: lambda _, name=name: clean[name]})
        np.testing.assert_allclose(patched(own.params, TOKENS[::-1]), expected, atol=1e-5, err_msg=name)


def test_an_intervention_is_called_in_its_own_layer_alone():
    own, seen = subject(layers=Scanned()), []

    def watched(x):
        jax.debug.callback(lambda mean: seen.append(float(mean)), jnp.abs(x).mean())
        return x

    intervene(own.apply, {"blocks.1.resid_post": watched})(own.params, TOKENS)
    jax.effects_barrier()
    assert len(seen) == 1


def test_interventions_come_in_order_and_can_be_stacked():
    own = subject()
    both = {"blocks.0.attention.out": lambda x: x + 1, "blocks.*.attention.out": lambda x: 2 * x}
    at_once = intervene(own.apply, both)(own.params, TOKENS)
    (first, one), (second, other) = both.items()
    in_turn = intervene(intervene(own.apply, {first: one}), {second: other})(own.params, TOKENS)
    np.testing.assert_array_equal(at_once, in_turn)


@pytest.mark.parametrize("layers", LAYERS)
def test_over_replicas(layers):
    own = subject(layers=LAYERS[layers])
    both = own.params, shaken(own.params, seed=1)
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *both)
    run = functools.partial(run_with_cache, own.apply, interventions={"blocks.1.attention.z": jnp.zeros_like})
    logits, found = jax.jit(jax.vmap(run, in_axes=(0, None)))(params, TOKENS)
    for replica, one in enumerate(both):
        expected, single = run(one, TOKENS)
        np.testing.assert_allclose(logits[replica], expected, atol=1e-4)
        np.testing.assert_allclose(found["blocks.1.resid_post"][replica], single["blocks.1.resid_post"], atol=1e-4)


def test_gradients_go_through():
    own = subject()

    def loss(out, params):
        changed = intervene(own.apply, {"blocks.1.attention.out": lambda _: out})
        return jnp.square(changed(params, TOKENS)).mean()

    def plain(params):
        return jnp.square(own.apply(params, TOKENS)).mean()

    out = run_with_cache(own.apply, own.params, TOKENS)[1]["blocks.1.attention.out"]
    gradient = jax.grad(loss)(out, own.params)
    step = 1e-2 * gradient / jnp.linalg.norm(gradient)
    slope = (loss(out + step, own.params) - loss(out - step, own.params)) / 2e-2
    np.testing.assert_allclose(slope, jnp.linalg.norm(gradient), rtol=1e-2)
    same = jax.grad(lambda params: jnp.square(run_with_cache(own.apply, params, TOKENS)[0]).mean())(own.params)
    for left, right in zip(jax.tree.leaves(same), jax.tree.leaves(jax.grad(plain)(own.params)), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


def test_a_cached_step_has_names_too():
    own = subject()
    cache = own.apply(own.params, 2, 8, method="start")
    (_, cache), _ = run_with_cache(own.apply, own.params, TOKENS[:, :4], cache, names=(), method="extend")
    _, found = run_with_cache(own.apply, own.params, TOKENS[:, 4:5], cache, method="extend")
    _, whole = run_with_cache(own.apply, own.params, TOKENS)
    name = "blocks.1.attention.z"
    np.testing.assert_allclose(found[name][:, 0], whole[name][:, 4], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "patterns"),
    [
        ("decoder", ["blocks.0.resid_post"]),
        ("encoder_decoder", ["encoder.blocks.0.resid_post", "decoder.*.resid_post"]),
    ],
)
def test_a_steered_model_decodes(kind, patterns):
    """Token by token as it does whole, and otherwise than the model itself; an encoder is steered before that."""
    own = subject(kind)
    steered = intervene(own.apply, {each: lambda x: x + jnp.linspace(0, 5, x.shape[-1]) for each in patterns})
    more, prompt = ({"source_BS": TOKENS[:, ::-1]}, TOKENS[:, :1]) if kind != "decoder" else ({}, TOKENS[:, :4])
    made = generate(steered, own.params, prompt, num_tokens=4, inputs=more).tokens_BT
    whole = jnp.concatenate([prompt, made], 1)
    chosen, plain = (apply(own.params, *more.values(), whole).argmax(-1)[:, -5:-1] for apply in (steered, own.apply))
    np.testing.assert_array_equal(made, chosen)
    assert (chosen != plain).any()
    nowhere = intervene(own.apply, {"blocks.9.resid_post": jnp.square})
    with pytest.raises(ConfigError, match=r"^no activation is named 'blocks\.9\.resid_post'; did you mean"):
        generate(nowhere, own.params, prompt, num_tokens=4, inputs=more)


@pytest.mark.parametrize("layers", LAYERS)
def test_names_cost_nothing(layers, monkeypatch):
    own = subject(layers=LAYERS[layers], residual=PreNorm())
    with_names = _program(own)
    for name, module in list(sys.modules.items()):
        if name.startswith("transformer.") and "checkpoint_name" in vars(module):
            monkeypatch.setattr(module, "checkpoint_name", lambda x, name: x)
    jax.clear_caches()
    assert _program(own) == with_names


def _program(own: Subject) -> str:
    """The compiled training step without what says where an operation comes from."""

    def loss(params):
        return jnp.square(own.apply(params, TOKENS)).mean()

    text = jax.jit(jax.value_and_grad(loss)).lower(own.params).compile().as_text() or ""
    operations = [line for line in text.splitlines() if " = " in line]
    assert len(operations) > 100
    return re.sub(r", metadata=\{[^}]*\}", "", "\n".join(operations))


def test_errors():
    own = subject()
    with pytest.raises(ConfigError, match=r"no activation is named 'blocks.1.attention.patern'.*attention.pattern"):
        run_with_cache(own.apply, own.params, TOKENS, names="blocks.1.attention.patern")
    with pytest.raises(ConfigError, match=r"no activation is named 'blocks.2.attention.z'"):
        intervene(own.apply, {"blocks.2.attention.z": jnp.zeros_like})(own.params, TOKENS)
    with pytest.raises(ValueError, match=r"blocks.0.attention.z: float32\[2, 8, 4, 8\] is replaced by float32\[2\]"):
        intervene(own.apply, {"blocks.0.attention.z": lambda x: x[:, 0, 0, 0]})(own.params, TOKENS)
    with pytest.raises(ConfigError, match=r"blocks.0.attention.z: its intervention returns NoneType, not an array \["):
        intervene(own.apply, {"blocks.0.attention.z": lambda x: None})(own.params, TOKENS)
    with pytest.raises(ConfigError, match=r"^token 99 at \(0, 0\) is not in \[0, 19\)"):
        run_with_cache(own.apply, own.params, TOKENS.at[0, 0].set(99))
    with pytest.raises(ConfigError, match="no activation is named 'blocks"):
        stacked({"final_norm.out": TOKENS}, "blocks.*.attention.z")
    other = subject(**{"mixer.backend": Chunked()})
    with pytest.raises(ConfigError, match=r"'blocks.0.attention.pattern'; attention forms them without a backend$"):
        run_with_cache(other.apply, other.params, TOKENS, names="blocks.0.attention.pattern")
    with pytest.raises(
        ConfigError, match=r"^interventions: 0\.0 on 'final_norm\.out' is no function of the activation"
    ):
        intervene(own.apply, {"final_norm.out": 0.0})
    with pytest.raises(ConfigError, match=r"^interventions: a dict such as .* is needed, and list is given$"):
        run_with_cache(own.apply, own.params, TOKENS, interventions=["final_norm.out"])


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (SimpleNamespace(apply=jnp.ones), "a SimpleNamespace; its `apply` is one"),
        ({"blocks": {}}, r"a dict; pure_model\(config\)\[1\] is one, and parameters come after it"),
    ],
)
def test_what_stands_for_a_model_is_refused(given, hint):
    for call in (
        lambda: run_with_cache(given, {}, TOKENS),
        lambda: intervene(given, {}),
        lambda: generate(given, {}, TOKENS, num_tokens=1),
    ):
        with pytest.raises(ConfigError, match=rf"^(run_with_cache|intervene|generate): apply is {hint}$"):
            call()


def test_the_description_names_what_there_is():
    own = subject()
    there = activation_names(own.apply, own.params, TOKENS)
    described = re.findall(r"^    ((?:blocks\.3|final_norm)\.[\w.]+)", activations.__doc__ or "", re.M)
    assert len(described) > 8
    assert {name.replace("blocks.3", "blocks.1") for name in described} <= set(there)
