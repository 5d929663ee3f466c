import json

import pytest

import transformer as T
from transformer.core.json import from_json, to_json
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
        ({"pattern": (T.Alternate("mixer.sparsty", (None,)),)}, "no field 'sparsty'; did you mean 'sparsity'"),
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
