"""Mixers, parts of attention, orders of a block and residuals that are written outside of the library."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.core.arrays import dense
from transformer.functional.masks import Causal, Prefix
from transformer.testing import check_variant, properties
from transformer.testing.subject import Subject, small, tokens_of


@dataclass(frozen=True)
class GatedRecurrence(T.Recurrence):
    """h ← f ⊙ h + (1 - f) ⊙ c."""

    name = "gated_recurrence"

    def parameters(self, model):
        square = T.Parameter((model.d_model, model.d_model), model.initializer)
        return dict.fromkeys(("forget", "candidate", "out"), square)

    def state(self, model):
        return {"hidden": (model.d_model,)}

    def inputs(self, x_BLD, mixed_BLX, params):
        kept = jax.nn.sigmoid(dense(x_BLD, params["forget"], jnp.float32))
        return kept, (1 - kept) * dense(x_BLD, params["candidate"], jnp.float32)

    def step(self, state, inputs):
        kept, new = inputs
        hidden = kept * state["hidden"] + new
        return {"hidden": hidden}, hidden

    def output(self, y_BLX, inputs, x_BLD, params):
        return dense(y_BLX.astype(x_BLD.dtype), params["out"])


@dataclass(frozen=True)
class Shifted(T.Mixer):
    """The token before, in every sequence, without a memory: for encoders."""

    causal = False

    def __call__(self, x_BLD, context, params):
        together = context.mask(context.tokens, context.tokens)[:, 0].astype(x_BLD.dtype)
        return together @ x_BLD / jnp.maximum(together.sum(-1, keepdims=True), 1.0), None


@dataclass(frozen=True)
class RunningMean(T.Mixer):
    """The mean of the tokens so far, of which it says nothing that could be remembered."""

    def __call__(self, x_BLD, context, params):
        count = jnp.arange(1.0, x_BLD.shape[1] + 1)[None, :, None]
        return (jnp.cumsum(x_BLD, 1) / count).astype(x_BLD.dtype), None


@dataclass(frozen=True)
class Temperature(T.Part):
    """The output of each head times a number that depends on the token."""

    def parameters(self, attention, model):
        return {"kernel": T.Parameter((model.d_model, attention.num_heads), model.initializer)}

    def mix(self, out_BLHV, own_BLHV, x_BLD, params):
        return out_BLHV * (1 + jnp.tanh(dense(x_BLD, params["kernel"])))[..., None]


@dataclass(frozen=True)
class FeedForwardFirst(T.BlockLayout):
    """Feed-forward, then the mixer."""

    connections = ((T.Sublayer("feed_forward"),), (T.Sublayer("mixer"),))


@dataclass(frozen=True)
class TwoMixers(T.BlockLayout):
    """A convolution before the model's mixer."""

    connections = ((T.Sublayer(T.Fourier(), name="spectrum"),), (T.Sublayer("mixer"),), (T.Sublayer("feed_forward"),))


@dataclass(frozen=True)
class HalfSteps(T.SingleStream):
    """x + f(norm(x)) / 2."""

    norms = ("input",)
    final_norm = True

    def b(self, params, depth):
        return 0.5


@pytest.mark.parametrize(
    "value", [GatedRecurrence(), Shifted(), Temperature(), FeedForwardFirst(), TwoMixers(), HalfSteps()], ids=str
)
def test_a_choice_of_ones_own_holds_in_every_context(value):
    assert len(check_variant(value).passed) > 10


@dataclass(frozen=True)
class Remembering(RunningMean):
    """With a memory of all tokens, which is what it has where it says no span."""

    takes_masks = True

    def memory(self, model, batch_size, slots, dtype):
        return T.Inputs(jnp.zeros((batch_size, slots, model.d_model), dtype))

    def __call__(self, x_BLD, context, params):
        seen_BSD, memory = x_BLD, None
        if context.writing is not None:
            seen_BSD, kept_BSD = context.writing.append(context.writing.memory.inputs_BSX, x_BLD, axis=1)
            memory = T.Inputs(kept_BSD)
        allowed_BLS = context.mask(context.tokens, context.keys)[:, 0].astype(x_BLD.dtype)
        return allowed_BLS @ seen_BSD / jnp.maximum(allowed_BLS.sum(-1, keepdims=True), 1.0), memory


def test_a_memory_has_slots_for_all_tokens():
    subject = Subject(small(mixer=Remembering(), position=None))
    properties.cached(subject)
    properties.branched(subject)


@dataclass(frozen=True)
class Hidden(T.Position):
    """Its bias is a function, whose arrays no program sees."""

    relative = True

    def bias(self, q_BLHK, causal, params):
        return lambda queries, keys: -queries.distance_from(keys)[:, None].astype(jnp.float32)


def test_a_bias_that_is_computed_in_blocks_shows_its_arrays():
    subject = Subject(small(position=Hidden()))
    assert jnp.isfinite(subject.apply(subject.params, tokens_of(2))).all()
    subject = Subject(small(**{"position": Hidden(), "mixer.backend": T.Chunked(4)}))
    with pytest.raises(T.ConfigError, match=r"^chunked attention: its bias is no pytree; make it a dataclass that"):
        subject.apply(subject.params, tokens_of(2))


@dataclass(frozen=True)
class Alone(T.Mixer):
    """Forgets that a memory is returned too."""

    causal = False

    def __call__(self, x_BLD, context, params):
        return x_BLD


@dataclass(frozen=True)
class Wider(T.Mixer):
    causal = False

    def __call__(self, x_BLD, context, params):
        return jnp.concatenate([x_BLD, x_BLD], -1), None


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        (Alone(), r"^alone: returns an array, not \(the output, the memory or None\)"),
        (Wider(), r"^blocks\.\*\.wider: wider returns \(2, 3, 48\) for an input of \(2, 3, 24\)"),
    ],
    ids=str,
)
def test_what_a_mixer_returns_is_named_where_it_is_wrong(mixer, message):
    """A batch of two would be taken for the output and the memory."""
    model = T.build(small(mixer=mixer, causal=False, d_model=24), key=jax.random.key(0))
    with pytest.raises(T.ConfigError, match=message):
        model(jnp.zeros((2, 3), jnp.int32))


def test_a_mixer_has_a_text_form_and_is_found_by_its_name():
    config = small(mixer="gated_recurrence")
    assert config.mixer == GatedRecurrence()
    assert str(config.mixer) == "gated_recurrence"
    hybrid = small(pattern=(T.Alternate("mixer", ("gated_recurrence", "attention(num_heads=2)")),), mixer=T.Attention())
    assert [kind.mixer for kind in hybrid.kinds] == [GatedRecurrence(), T.Attention(num_heads=2)]


def bytes_of(config, length):
    return T.cache_bytes(config.replace(max_length=length), length)


def test_a_state_does_not_grow_with_the_length():
    alone = small(mixer=GatedRecurrence(), position=None)
    assert bytes_of(alone, 64) == bytes_of(alone, 4096) == 2 * 32 * 4
    hybrid = small(position=None, pattern=(T.Alternate("mixer", (GatedRecurrence(), small().mixer)),))
    attention, state = bytes_of(small(position=None), 64) // 2, 32 * 4
    assert bytes_of(hybrid, 64) == attention + state
    assert bytes_of(hybrid, 128) == 2 * attention + state


def test_a_layer_without_mixer_remembers_nothing():
    assert bytes_of(small(mixer=None), 64) == 0


@pytest.mark.parametrize("strategy", [T.Greedy(), T.Beam(size=3)], ids=str)
@pytest.mark.parametrize("hybrid", [False, True])
def test_generates_as_without_a_memory(strategy, hybrid):
    pattern = (T.Alternate("mixer", (GatedRecurrence(), small().mixer)),) if hybrid else ()
    config = small(position=None, max_length=24, **({"pattern": pattern} if hybrid else {"mixer": GatedRecurrence()}))
    params, apply = T.split(T.build(config, key=jax.random.key(0)))
    prompt_BL, lengths_B = tokens_of(2, 6), jnp.array([6, 4])
    found = T.generate(apply, params, prompt_BL, num_tokens=5, strategy=strategy, lengths_B=lengths_B)
    for row, length in enumerate((6, 4)):
        text = list(prompt_BL[row, :length])
        if isinstance(strategy, T.Greedy):
            for _ in range(5):
                text.append(int(apply(params, jnp.array([text]))[0, -1].argmax()))
            assert list(found.tokens_BT[row]) == text[length:]
        whole = jnp.array([[*prompt_BL[row, :length], *found.tokens_BT[row]]])
        logits = jax.nn.log_softmax(apply(params, whole))[0, length - 1 : -1]
        own = logits[jnp.arange(5), whole[0, length:]].sum()
        np.testing.assert_allclose(found.log_probability_B[row], own, rtol=1e-4)


def test_what_a_state_cannot_do_is_refused_in_one_line():
    config = small(mixer=GatedRecurrence(), position=None, max_length=24)
    params, apply = T.split(T.build(config, key=jax.random.key(0)))
    with pytest.raises(T.ConfigError, match="keeps one state, so that no token of a cache can be undone"):
        apply(params, 1, 8, method="start", ahead=2)
    with pytest.raises(T.ConfigError, match="gated_recurrence does not know of"):
        apply(params, tokens_of(1), mask=Causal() | Prefix(2))
    with pytest.raises(T.ConfigError, match="gated_recurrence hands no segments on"):
        config.replace(memory_length=4)
    with pytest.raises(T.ConfigError, match="gated_recurrence reads from left to right"):
        config.replace(causal=False)
    with pytest.raises(T.ConfigError, match="shifted mixes each token with all others"):
        small(mixer=Shifted())


def test_a_mixer_without_a_memory_does_not_decode():
    """It would read each token alone, and nothing but the text would show it."""
    params, apply = T.split(T.LanguageModel(small(mixer=RunningMean(), position=None), key=jax.random.key(0)))
    apply(params, tokens_of(2))
    with pytest.raises(T.ConfigError, match=r"^model\.mixer: runningmean defines no memory, so it cannot decode"):
        T.generate(apply, params, tokens_of(2), num_tokens=3)


READS = {
    "candidate": (T.HGRN(), T.MinGRU()),
    "value": (
        T.GatedDeltaNet(num_heads=2),
        T.GatedLinearAttention(num_heads=2),
        T.Mamba2(num_heads=2),
        T.RWKV7(num_heads=2),
    ),
    "into": (T.RGLRU(blocks=2), T.Convolution()),
}


@pytest.mark.parametrize(("mixer", "reads"), [(mixer, name) for name in READS for mixer in READS[name]], ids=str)
def test_a_residual_connection_scales_what_reads_values_and_the_output(mixer, reads):
    """By its inner and by its outer factor, which in Fixup are 1/√branches and 0; all else begins as ever."""
    plain = T.ModelConfig(vocab_size=5, d_model=8, num_layers=2, mixer=mixer, position=None)
    plain = plain.replace(residual=T.NoNormResidual(), scale_residual_init=False)
    fixed, usual = (
        mixer.build(one, key=jax.random.key(0)).params() for one in (plain.replace(residual=T.Fixup()), plain)
    )
    factors = {reads: 0.5, "out": 0.0}
    for name, values in usual.items():
        np.testing.assert_allclose(fixed[name], factors.get(name, 1.0) * values, rtol=1e-6)
