"""The stream read as logits, and logits taken apart: the parts add up."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.activations import intervene, run_with_cache
from transformer.analysis.interventions import ablate_heads, patch, patching_effects
from transformer.analysis.lenses import logit_attribution, logit_lens
from transformer.core.errors import ConfigError
from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.score_mods import SoftCap
from transformer.models.blocks import Macaron, Parallel
from transformer.models.classifier import ClassifierConfig
from transformer.models.downsampling import Hourglass
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.stack import Scanned
from transformer.norms.norm import RMSNorm
from transformer.objectives.chunked import ChunkedNextToken
from transformer.objectives.objective import NextToken
from transformer.residuals.multi_stream import HyperConnections, ResiDual
from transformer.residuals.residual import BranchNorm, DeepNorm, PostNorm, PreNorm, SandwichNorm, SubNorm
from transformer.testing.subject import Subject, small, tokens_of

TOKENS = jnp.asarray(tokens_of(2))
CHOICES = {
    "pre": {},
    "scanned": {"layers": Scanned()},
    "post": {"residual": PostNorm()},
    "streams": {"residual": HyperConnections()},
    "parallel": {"block": Parallel()},
    "three sublayers": {"block": Macaron()},
    "capped": {"head.score_mod": SoftCap(2.0)},
    "experts": {"feed_forward": TopKExperts(4, top=2)},
}


@functools.cache
def subject(name: str) -> Subject:
    return Subject(small(**CHOICES[name]))


@pytest.mark.parametrize("name", CHOICES)
def test_parts_add_up_to_the_logit_and_the_last_lens_is_the_logits(name):
    own = subject(name)
    logits, _ = run_with_cache(own.apply, own.params, TOKENS, names=())
    *_, last = logit_lens(own.apply, own.params, TOKENS).values()
    np.testing.assert_allclose(last, logits, atol=1e-5)
    parts = logit_attribution(own.apply, own.params, TOKENS, target_BL=TOKENS)
    expected = np.take_along_axis(np.asarray(logits), np.asarray(TOKENS)[..., None], -1)[..., 0]
    np.testing.assert_allclose(sum(parts.values()), expected, atol=1e-4)


def test_the_lens_after_a_block_is_the_model_without_the_blocks_after_it():
    own = subject("pre")
    lens = logit_lens(own.apply, own.params, TOKENS)
    off = {f"blocks.1.{sublayer}.out": jnp.zeros_like for sublayer in ("attention", "feed_forward")}
    expected = intervene(own.apply, off)(own.params, TOKENS)
    np.testing.assert_allclose(lens["blocks.0.resid_post"], expected, atol=1e-5)


@pytest.mark.parametrize(
    "residual", [PreNorm(), SandwichNorm(), BranchNorm(), SubNorm(), PostNorm(), DeepNorm()], ids=str
)
def test_without_biases_nothing_is_left_over(residual):
    """Where a norm follows the heads, it divides each by what all of them have, and what was in the stream before."""
    own = Subject(small(norm=RMSNorm(), residual=residual))
    parts = logit_attribution(own.apply, own.params, TOKENS, target_BL=TOKENS)
    assert [name for name in parts if "block" not in name] == ["embedding", "rest"]
    assert sum("head" in name for name in parts) == 8
    for name in ("rest", "blocks.0.attention", "blocks.1.attention"):
        np.testing.assert_allclose(parts[name], 0, atol=1e-4)


def test_a_part_is_what_the_logit_loses_without_it():
    """Under the statistic of the whole run, as the attribution has it."""
    own = subject("pre")
    _, found = run_with_cache(own.apply, own.params, TOKENS, names="final_norm.scale")
    whole = {"final_norm.scale": lambda _: found["final_norm.scale"]}
    without = intervene(own.apply, {"blocks.1.attention.z": ablate_heads(2)} | whole)
    # the feed-forward sublayer of the block answers something else without the head: hold it
    _, held = run_with_cache(own.apply, own.params, TOKENS, names="blocks.1.feed_forward.out")
    without = intervene(without, {name: lambda _, x=x: x for name, x in held.items()})
    lost = own.apply(jax.tree.map(jnp.asarray, own.params), TOKENS) - without(own.params, TOKENS)
    parts = logit_attribution(own.apply, own.params, TOKENS, target_BL=TOKENS)
    expected = np.take_along_axis(np.asarray(lost), np.asarray(TOKENS)[..., None], -1)[..., 0]
    np.testing.assert_allclose(parts["blocks.1.attention.head_2"], expected, atol=1e-4)


def test_an_encoder_decoder_is_read_off_its_decoder():
    own = Subject(small(EncoderDecoderConfig, num_layers=1))
    pair = TOKENS[:, ::-1], TOKENS
    logits, _ = run_with_cache(own.apply, own.params, *pair, names=())
    lens = logit_lens(own.apply, own.params, *pair)
    assert next(iter(lens)) == "decoder.blocks.0.resid_pre"
    np.testing.assert_allclose(lens["decoder.blocks.0.resid_post"], logits, atol=1e-5)
    parts = logit_attribution(own.apply, own.params, *pair, target_BL=TOKENS)
    assert "decoder.blocks.0.cross_attention.head_3" in parts
    expected = np.take_along_axis(np.asarray(logits), np.asarray(TOKENS)[..., None], -1)[..., 0]
    np.testing.assert_allclose(sum(parts.values()), expected, atol=1e-4)


def test_a_stream_of_several_parts_is_refused():
    own = Subject(small(residual=ResiDual()))
    with pytest.raises(ConfigError, match=r"the stream has several parts, blocks.0.resid_post.1 is one"):
        logit_lens(own.apply, own.params, TOKENS)
    own = Subject(small(num_layers=4, downsampling=Hourglass()))
    with pytest.raises(ConfigError, match=r"other vectors at blocks.1.resid_attention than at blocks.3.resid_post"):
        logit_lens(own.apply, own.params, TOKENS)


def test_ablation_and_patching_touch_what_they_name():
    z = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 4, 3)), jnp.float32)
    other = z + 1
    np.testing.assert_array_equal(ablate_heads()(z), z)
    silent = ablate_heads(1, 3)(z)
    np.testing.assert_array_equal(silent[:, :, jnp.array([1, 3])], 0)
    np.testing.assert_array_equal(silent[:, :, jnp.array([0, 2])], z[:, :, jnp.array([0, 2])])
    np.testing.assert_allclose(ablate_heads(1, by_mean=True)(z)[1, 2, 1], z[:, :, 1].mean((0, 1)), rtol=1e-5)
    patched = patch(other, positions=2, heads=1)(z)
    assert (patched != z).sum() == 2 * 3
    np.testing.assert_array_equal(patched[:, 2, 1], other[:, 2, 1])
    np.testing.assert_array_equal(patch(other)(z), other)


def test_heads_are_numbers():
    for wrong in ([0, 1], "0"):
        with pytest.raises(ConfigError, match=r"^ablate_heads: .* is no number of a head; ablate_heads\(0, 2\)"):
            ablate_heads(wrong)


def test_an_ablation_of_heads_is_none_of_their_weights():
    own = subject("pre")
    with pytest.raises(ConfigError, match=r"attention\.pattern has no outputs of heads; its layer's z has them"):
        intervene(own.apply, {"blocks.0.attention.pattern": ablate_heads(1)})(own.params, TOKENS)


def test_patching_all_of_the_stream_at_the_last_token_brings_the_clean_answer_back():
    own = subject("pre")
    clean, corrupted = TOKENS, TOKENS.at[:, 3].set(TOKENS[:, 7])
    logits, _ = run_with_cache(own.apply, own.params, clean, names=())
    names = ["blocks.0.resid_pre", "blocks.1.resid_post"]
    effects = patching_effects(own.apply, own.params, (clean,), (corrupted,), names, lambda out: out[0, -1, 3])
    assert {name: each.shape for name, each in effects.items()} == dict.fromkeys(names, (8,))
    np.testing.assert_allclose(effects[names[1]][-1], logits[0, -1, 3], atol=1e-5)
    np.testing.assert_allclose(effects[names[0]][3], logits[0, -1, 3], atol=1e-5)  # the one token that differs
    nothing = run_with_cache(own.apply, own.params, corrupted, names=())[0][0, -1, 3]
    for each in effects.values():
        np.testing.assert_allclose(each[0], nothing, atol=1e-5)
    by_pattern = patching_effects(
        own.apply, own.params, clean, corrupted, "blocks.*.resid_p*", lambda out: out[0, -1, 3]
    )
    assert [name for name in by_pattern if name.startswith("blocks.0")] == [
        "blocks.0.resid_pre",
        "blocks.0.resid_post",
    ]
    for name in names:
        np.testing.assert_array_equal(by_pattern[name], effects[name])


def test_what_has_no_positions_on_its_second_axis():
    own = subject("pre")
    line = r"^blocks\.0\.attention\.scores has heads on axis 1, not positions; "
    with pytest.raises(ConfigError, match=line):
        patching_effects(own.apply, own.params, TOKENS, TOKENS, "blocks.0.attention.*", jnp.mean)


def test_patching_each_head_is_patching_it_by_hand():
    own, name = subject("pre"), "blocks.0.attention.z"
    corrupted = TOKENS.at[:, 3].set(TOKENS[:, 7])
    _, found = run_with_cache(own.apply, own.params, TOKENS, names=name)
    effects = patching_effects(own.apply, own.params, TOKENS, corrupted, name, lambda out: out[0, -1, 3], by_head=True)
    for head, effect in enumerate(effects[name]):
        changed = intervene(own.apply, {name: lambda z, head=head: z.at[:, :, head].set(found[name][:, :, head])})
        np.testing.assert_allclose(effect, changed(own.params, corrupted)[0, -1, 3], atol=1e-5)
    assert len(effects[name]) == own.config.mixer.num_heads > 1
    assert np.ptp(effects[name]) > 1e-4


def test_an_activation_without_heads_is_not_patched_by_head():
    own = subject("pre")
    with pytest.raises(ConfigError, match=r"^blocks\.0\.resid_pre has no heads; "):
        patching_effects(own.apply, own.params, TOKENS, TOKENS, "*resid_pre", jnp.mean, by_head=True)


def test_positions_and_heads_of_a_patch_are_a_product():
    """Each chosen head at each chosen position, whatever number there is of either."""
    z, other = np.random.default_rng(0).normal(size=(2, 2, 4, 3, 5)).astype(np.float32)
    patched = patch(jnp.asarray(other), positions=[0, 2, -1], heads=np.array([0, 2]))(jnp.asarray(z))
    wanted = z.copy()
    wanted[:, [[0], [2], [3]], [[0, 2]]] = other[:, [[0], [2], [3]], [[0, 2]]]
    np.testing.assert_array_equal(patched, wanted)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (ablate_heads(7), "heads: there is no 7 among 3"),
        (patch(jnp.zeros((2, 4, 3, 5)), positions=4), "positions: there is no 4 among 4"),
        (patch(jnp.zeros((2, 4, 3, 5)), heads=[0, -4]), "heads: there is no -4 among 3"),
        (patch(jnp.zeros((2, 4, 3, 5)), heads=jnp.array([9])), "heads: there is no 9 among 3"),
        (patch(jnp.zeros((2, 4, 3, 5)), positions=slice(7, 9)), "positions: a slice to or from 7 among 4"),
        (patch(jnp.zeros((2, 4, 3, 5)), heads=[True, False]), "heads: 2 truth values for 3"),
        (patch(jnp.zeros((2, 1, 3, 5))), r"patch: an activation float32\(2, 1, 3, 5\) for one float32\(2, 4, 3, 5\)"),
        (patch(np.zeros((2, 4, 3, 5))), r"patch: an activation float64\(2, 4, 3, 5\) for one float32\(2, 4, 3, 5\)"),
        (patch(jnp.zeros((2, 4, 3, 5)), positions=slice(0, 100)), "positions: a slice to or from 100 among 4"),
        (patch(jnp.zeros((2, 4, 3, 5)), positions=[[0, 1]]), r"positions: \[\[0, 1\]\] is neither a number nor a seq"),
        (patch(jnp.zeros((2, 4, 3, 5)), positions="3"), "positions: '3' is neither a number nor a sequence"),
    ],
    ids=range(11),
)
def test_a_head_or_a_position_that_there_is_not(act, message):
    with pytest.raises(ConfigError, match=message):
        act(jnp.ones((2, 4, 3, 5)))


@pytest.mark.parametrize(("name", "chosen"), [("resid_pre", {"heads": 1}), ("attention.pattern", {"positions": 1})])
def test_an_axis_that_is_another_one_is_not_patched(name, chosen):
    own, name = subject("pre"), f"blocks.0.{name}"
    other = run_with_cache(own.apply, own.params, TOKENS, names=name)[1][name]
    with pytest.raises(ConfigError, match=rf"^{name} has (no heads; |heads on axis 1, )"):
        intervene(own.apply, {name: patch(other, **chosen)})(own.params, TOKENS)


def test_a_patch_may_be_compiled():
    np.testing.assert_array_equal(jax.jit(patch(jnp.ones((1, 2))))(jnp.zeros((1, 2))), jnp.ones((1, 2)))


def test_a_measure_is_a_number():
    own = subject("pre")
    with pytest.raises(ConfigError, match=r"^patching_effects: measure gives an array \(2,\), not a number"):
        patching_effects(own.apply, own.params, TOKENS, TOKENS, "*resid_pre", lambda out: out[:, -1, 3])


def test_targets_are_tokens():
    own = subject("pre")
    with pytest.raises(ConfigError, match=r"^logit_attribution: target -3 at \(0, 0\) is not in \[0, 19\)$"):
        logit_attribution(own.apply, own.params, TOKENS, target_BL=TOKENS.at[0, 0].set(-3))


def test_a_clean_run_has_the_shapes_of_the_corrupted_one():
    own = subject("pre")
    for clean in (TOKENS[:, :1], TOKENS[:1]):
        with pytest.raises(ConfigError, match=r"^patching_effects: inputs .* which need the same shapes$"):
            patching_effects(own.apply, own.params, clean, TOKENS, "blocks.0.resid_pre", jnp.sum)


def test_an_intervention_acts_where_states_are_read_apart_from_logits():
    """As an objective does that computes logits in chunks."""
    own = Subject(small(vocab_size=32))
    changed = intervene(own.apply, {"blocks.0.attention.z": ablate_heads(1)})
    batch = {"tokens": TOKENS}
    both = NextToken(), ChunkedNextToken(chunk=3)
    sums = [one.segment_sums(changed, own.params, batch, None, None)[0] for one in both]
    np.testing.assert_allclose(sums[1].loss, sums[0].loss, rtol=1e-5)
    plain = NextToken().segment_sums(own.apply, own.params, batch, None, None)[0]
    assert abs(plain.loss - sums[0].loss).max() > 1e-4


def test_targets_that_have_no_logits_are_refused():
    own = Subject(small(ClassifierConfig, causal=False, num_classes=3))
    with pytest.raises(ConfigError, match=r"targets \(2, \d+\) for logits \(2, 3\)"):
        logit_attribution(own.apply, own.params, TOKENS, target_BL=TOKENS)
