import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.core.errors import ConfigError
from transformer.core.json import from_json, to_json
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.config import ModelConfig
from transformer.models.pattern import Alternate
from transformer.testing.subject import small


def test_layers_take_choices_in_turn():
    config = small(pattern=(T.Alternate("mixer.sparsity", (T.SlidingWindow(3), None)),), num_layers=4)
    assert [config.layer_config(i).mixer.sparsity for i in range(4)] == [T.SlidingWindow(3), None] * 2
    assert config.period == 2


def test_several_choices_repeat_after_their_common_multiple():
    pattern = (T.Alternate("position", (T.RoPE(), None)), T.Alternate("mixer.normalizer", (T.Sink(), T.Sink(), None)))
    config = small(pattern=pattern, num_layers=6, position=None)
    assert config.period == 6
    assert [kind.position for kind in config.kinds] == [T.RoPE(), None] * 3


def test_text_and_json_come_back_as_the_same_value():
    text = "alternate(path='mixer.sparsity', values=[sliding_window(size=3), none])"
    config = small(pattern=(text,))
    assert config == small(pattern=(T.Alternate("mixer.sparsity", (T.SlidingWindow(3), None)),))
    assert str(config.pattern[0]) == text
    assert from_json(T.ModelConfig, json.loads(json.dumps(to_json(config)))) == config


def test_numbers_alternate_too():
    config = small(pattern=(T.Alternate("mixer.dropout", (0.0, 0.1)),))
    assert [kind.mixer.dropout for kind in config.kinds] == [0.0, 0.1]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"pattern": (T.Alternate("mixer.sparsty", (None,)),)},
            r"^model\.pattern: sparsty: no field 'sparsty'; did",
        ),
        ({"pattern": (T.Alternate("mixer.sparsity", ("slidng_window",)),)}, "did you mean 'sliding_window'"),
        ({"num_layers": 3, "pattern": (T.Alternate("position", (T.RoPE(), None)),)}, "are not whole turns of 2"),
        (
            {"mixer.sparsity": T.Strided(3), "pattern": (T.Alternate("mixer.sparsity", (T.SlidingWindow(3), None)),)},
            "it sets mixer.sparsity everywhere, so strided",
        ),
        ({"pattern": (T.Alternate("position", (T.RoPE(), None)),) * 2}, "position alternates twice"),
    ],
)
def test_errors(choices, message):
    with pytest.raises(T.ConfigError, match=message):
        small(**choices)


def test_what_cannot_change_is_named():
    with pytest.raises(T.ConfigError, match=r"alternate.path: 'norm' cannot change; known: block, feed_forward"):
        T.Alternate("norm", (None,))
    with pytest.raises(T.ConfigError, match=r"are no values in turn"):
        T.Alternate("mixer", ())


def test_a_decoder_of_layers_without_attention_cannot_attend_to_a_source():
    with pytest.raises(T.ConfigError, match=r"the decoder of mixer=none has no attention"):
        small(T.EncoderDecoderConfig, pattern=(T.Alternate("mixer", (None, T.Attention())),), mixer=T.Attention())


def test_each_position_of_a_pattern_meets_attention():
    """In one of the layers that have it."""
    mixers = "alternate('mixer', [none, attention])"
    with pytest.raises(
        ConfigError, match=r"model\.position: rope enters attention, and the model has none \(mixer=none\)"
    ):
        ModelConfig().replace(position="none", pattern=["alternate('position', [rope, none])", mixers])
    for position, own in (("none", ["alternate('position', [none, rope])"]), ("rope", [])):
        assert ModelConfig().replace(position=position, pattern=[*own, mixers]).period == 2


def test_a_pattern_and_the_model_do_not_contradict():
    """What the pattern says of every layer, the model does not say too."""
    pattern = (Alternate("mixer.sparsity", (SlidingWindow(2), None)),)
    seen = [ModelConfig(pattern=pattern).layer_config(i).mixer.sparsity for i in range(3)]
    assert seen == [SlidingWindow(2), None, SlidingWindow(2)]
    with pytest.raises(ConfigError, match=r"pattern: it sets mixer\.sparsity everywhere, so sliding_window\(size=3\)"):
        ModelConfig(pattern=pattern, mixer=Attention(sparsity=SlidingWindow(3)))
    with pytest.raises(ConfigError, match="3 layers, 3 of them distinct, are not whole turns of 2"):
        ModelConfig(pattern=pattern, num_layers=3)


@pytest.mark.parametrize("position", ["rope", "randomized(scheme=rope)"])
@pytest.mark.parametrize("first", ["rope", "randomized(scheme=rope)"])
def test_randomized_positions_are_those_of_all_layers(position, first):
    """A model draws them once, so that a pattern has no place for them, nor beside them."""
    choices = {"position": position, "pattern": [f"alternate('position', [{first}, none])"]}
    if position == first == "rope":
        ModelConfig().replace(**choices)
        return
    with pytest.raises(ConfigError, match=r"^model.pattern: randomized\(scheme=rope\) changes positions in all layers"):
        ModelConfig().replace(**choices)


def test_branches_are_counted_over_the_layers_of_a_pattern():
    """A layer of a pattern sees those of the whole stack, from which initial values are scaled."""
    layers = (
        Alternate("mixer", (Attention(), Attention(), None)),
        Alternate("feed_forward", (None, FeedForward(), FeedForward())),
    )
    config = ModelConfig(num_layers=6, pattern=layers)
    assert [config.layer_config(layer).branches for layer in range(3)] == [8, 8, 8]
    assert config.branches == 8
    assert config.layer_config(0).output_gain(config.residual) == 8**-0.5


@pytest.mark.parametrize("others", ["none", "rope(base=500)"])
def test_keys_are_taken_over_under_the_position_that_placed_them(others):
    """A query that is not turned, or by other angles, says nothing against keys that are."""
    sharing = "alternate('mixer.sharing', [none, keys_values])"
    for same in ("rope", "none"):
        ModelConfig().replace(position=same, pattern=[sharing])
    with pytest.raises(
        ConfigError, match=r"mixer\.sharing: layers with position=.* take over keys placed by rope; use one"
    ):
        ModelConfig().replace(position="rope", pattern=[sharing, f"alternate('position', [rope, {others}])"])
    by_pairs = "alternate('mixer.sharing', [none, keys_values, none, keys_values])"
    ModelConfig().replace(
        position="rope", pattern=[by_pairs, f"alternate('position', [rope, rope, {others}, {others}])"]
    )


@pytest.mark.parametrize(
    ("sharing", "path", "heads", "message"),
    [
        ("values", "num_kv_heads", (4, 2), r"values of 2 heads of 4 and 4 heads of 4 are passed on; use the same"),
        ("values", "num_heads", (4, 2), r"values of 2 heads of 8 and 4 heads of 4 are passed on; use the same"),
        ("scores", "num_heads", (4, 2), r"2 heads take over the scores of 4; use as many in both"),
    ],
)
def test_what_is_taken_over_fits(sharing, path, heads, message):
    own = ModelConfig(vocab_size=8, max_length=8, num_layers=2, d_model=16, position=None)
    pattern = (T.Alternate(f"mixer.{path}", heads), T.Alternate("mixer.sharing", (None, sharing)))
    with pytest.raises(ConfigError, match=rf"^mixer\.sharing: {message}"):
        own.replace(pattern=pattern)


@pytest.mark.parametrize("sharing", ["scores", "keys_values"])
def test_layers_that_share_with_none_between_may_have_other_heads(sharing):
    heads, taken = T.Alternate("mixer.num_heads", (4, 4, 2, 2)), T.Alternate("mixer.sharing", (None, sharing))
    sizes = {"vocab_size": 8, "max_length": 8, "num_layers": 4, "d_model": 16, "position": None}
    params, apply = T.pure_model(ModelConfig(**sizes, pattern=(heads, taken)))
    assert jax.eval_shape(apply, params, jnp.ones((1, 4), jnp.int32)).shape == (1, 4, 8)


def test_what_predicts_ahead_is_as_the_last_layer():
    """Nothing is built of choices that the pattern takes the place of, which need not fit the model."""
    pattern = (T.Alternate("mixer", (T.HGRN(), T.MinGRU())), T.Alternate("feed_forward", (T.FeedForward(d_ff=8),)))
    sizes = {"vocab_size": 8, "max_length": 8, "d_model": 18, "num_layers": 2}
    config = T.ModelConfig(**sizes, pattern=pattern, predict_ahead=1)
    params, _ = T.split(T.LanguageModel(config, key=jax.random.key(0)))
    ahead = params["future"]["0"]
    assert ahead.keys() >= {"min_gru", "feed_forward"}
    assert ahead["feed_forward"]["out"]["kernel"].shape == (8, 18)


@pytest.mark.parametrize("sharing", ["keys_values", "values", "value_embeddings"])
def test_what_predicts_ahead_takes_nothing_over(sharing):
    """Also attention beside another mixer."""
    beside = T.SideBySide(mixer=Attention(num_heads=2))
    pattern = (T.Alternate("block.mixer.sharing", (None, sharing)),)
    sizes = {"vocab_size": 8, "max_length": 8, "d_model": 16, "num_layers": 2, "position": None}
    config = T.ModelConfig(**sizes, mixer=T.HGRN(), block=beside, pattern=pattern, predict_ahead=1)
    params, apply = T.split(T.LanguageModel(config, key=jax.random.key(0)))
    assert "sharing" not in str(params["future"]["0"].keys() | params["future"]["0"]["attention"].keys())
    assert apply(params, jnp.ones((1, 4), jnp.int32), method="predict_ahead").shape == (2, 1, 4, 8)


def test_a_table_of_values_has_the_heads_of_the_layers_that_take_them_over():
    heads, taken = T.Alternate("mixer.num_kv_heads", (4, 2)), T.Alternate("mixer.sharing", (None, T.ValueEmbeddings()))
    config = small(pattern=(heads, taken), position=None)
    params = T.initial_params(config, jax.random.key(0))
    assert params["value_embedding"]["table"].shape == (config.vocab_size, config.d_model // 2)


def test_deepnorm_knows_all_branches():
    """α is of as many as β, also where blocks have different numbers of them."""
    pattern = (T.Alternate("feed_forward", (None, FeedForward())),)
    sizes = {"vocab_size": 8, "max_length": 8, "d_model": 16, "num_layers": 4}
    config = T.ModelConfig(**sizes, pattern=pattern, residual=T.DeepNorm())
    assert config.branches == 6
    apply = T.pure_model(config)[1]
    program = str(jax.make_jaxpr(apply)(T.initial_params(config, jax.random.key(0)), jnp.ones((1, 4), jnp.int32)))
    assert f"{6**0.25:.5f}"[:6] in program
    assert f"{8**0.25:.5f}"[:6] not in program


def test_gains_of_embeddings_are_none_of_outputs():
    """T-Fixup scales what is read (Huang et al. 2020)."""
    config = small(**{"residual": T.TFixup(), "head.tied": False})
    assert config.embedding_gain < 1
    plain, scaled = (T.initial_params(one, jax.random.key(0)) for one in (config.replace(residual=T.PreNorm()), config))
    np.testing.assert_array_equal(scaled["output"]["table"], plain["output"]["table"])
    expected = config.embedding_gain * plain["embedding"]["table"]
    np.testing.assert_allclose(scaled["embedding"]["table"], expected, rtol=1e-6)
