"""The model's configuration: sizes that follow from others, and errors that name the nearest size that fits."""

import itertools

import pytest

from transformer.core.values import ConfigError
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.blocks import Sequential
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import VisionConfig
from transformer.models.pattern import Alternate
from transformer.positions.rotary import RoPE
from transformer.residuals.scaled_branches import Fixup


def test_derived_sizes():
    """Sizes left open follow from the width and the heads; given ones are kept."""
    config = ModelConfig(d_model=48, num_heads=6)
    assert (config.kv_heads, config.head_size, config.ff_width) == (6, 8, 192)
    config = ModelConfig(d_model=50, num_heads=6, num_kv_heads=3, head_dim=10, d_ff=70)
    assert (config.kv_heads, config.head_size, config.ff_width) == (3, 10, 70)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 128, "num_heads": 5}, "model.num_heads: 5 heads do not divide d_model 128; .* is 4"),
        ({"d_model": 96, "num_heads": 11}, "model.num_heads: 11 heads do not divide d_model 96; .* is 12"),
        ({"num_heads": 4, "num_kv_heads": 3}, "model.num_kv_heads: 3 key-value heads do not divide 4 .* is 2"),
        ({"num_heads": 4, "num_kv_heads": 8}, "model.num_kv_heads: 8 key-value heads do not divide 4 .* is 4"),
        ({"d_model": 12, "position": RoPE()}, "rope: fraction 1.0 of head_dim 3 is 3 features, not an even number"),
        ({"position": RoPE(fraction=0.01)}, "rope: fraction 0.01 of head_dim 32 is 0 features"),
        ({"dropout": 1.0}, r"model.dropout: 1.0 is not in \[0, 1\)"),
        ({"dropout": -0.1}, r"model.dropout: -0.1 is not in \[0, 1\)"),
    ],
)
def test_errors(fields, message):
    """One line: what does not fit, with what, and the nearest that does."""
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**fields)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((ModelConfig, name) for name in ("vocab_size", "max_length", "num_layers", "d_model", "num_heads")),
        *((ModelConfig, name) for name in ("num_kv_heads", "head_dim", "d_ff")),
        *((EncoderDecoderConfig, name) for name in ("source_vocab_size", "max_source_length", "num_encoder_layers")),
        (EncoderDecoderConfig, "distinct_encoder_layers"),
        (ClassifierConfig, "num_classes"),
        *((VisionConfig, name) for name in ("patch_size", "num_classes", "d_ff")),
    ],
)
@pytest.mark.parametrize("value", [0, -2])
def test_sizes_are_positive(kind, name, value):
    """A size of zero or less is an error under the name of the field that was set."""
    with pytest.raises(ConfigError, match=f"model.{name}: {value} is not a positive number"):
        kind(**{name: value})


def test_more_heads_than_width():
    """Heads that leave no room for a feature are an error about a field that exists."""
    with pytest.raises(ConfigError, match=r"model\.num_heads"):
        ModelConfig(d_model=2, num_heads=4)


def test_rope_rotates_no_more_than_the_head():
    """A fraction above 1 is an error of the configuration, not of the first call."""
    with pytest.raises(ConfigError, match="rope"):
        ModelConfig(position=RoPE(fraction=1.5))


def test_head_dim_frees_the_width():
    """With head_dim set, the heads need not divide the width; the position is checked against head_dim."""
    assert ModelConfig(d_model=50, num_heads=4, head_dim=6).head_size == 6
    with pytest.raises(ConfigError, match="head_dim 5"):
        ModelConfig(head_dim=5, position=RoPE())


def test_each_kind_of_sublayer_has_the_gains_of_its_own_connection():
    """Fixup's feed-forward sublayers begin at 0; attention beside it begins as usual."""
    config = ModelConfig(feed_forward_residual=Fixup())
    assert config.residual_gain("feed_forward") == 0
    assert config.residual_gain("attention") == ModelConfig().residual_gain("attention") > 0
    assert config.inner_gain("feed_forward") == config.branches**-0.5
    assert config.inner_gain("attention") == 1


STREAMS = ["pre", "residual", "embedding_skip", "u_net", "hyper(streams=1)", "hyper", "hyper(streams=3)"]


@pytest.mark.parametrize(("own", "other"), list(itertools.permutations(STREAMS, 2)))
def test_connections_of_one_stack_share_a_stream(own, other):
    """What one leaves means something to the next: as many vectors of a token are not enough."""
    changes = [{"feed_forward_residual": other}, {"pattern": f"pattern(residual=[{own}, {other}])"}]
    for change in changes:
        with pytest.raises(ConfigError, match=r"^model\.\w+: .* cannot share one stream; "):
            ModelConfig().replace(residual=own, **change)


@pytest.mark.parametrize(
    ("own", "other"), [*zip(STREAMS, STREAMS, strict=True), ("post", "rezero"), ("hyper", "hyper(dynamic=False)")]
)
def test_connections_that_share_a_stream(own, other):
    """Norms and parameters may differ in one stack."""
    pattern = f"pattern(residual=[{own}, {other}])"
    assert ModelConfig().replace(residual=own, feed_forward_residual=other, pattern=pattern).num_layers == 4


@pytest.mark.parametrize("residual", STREAMS[1:])
def test_a_shortened_stream_is_plain(residual):
    """Means of tokens are those of one vector of each."""
    with pytest.raises(ConfigError, match=r"model\.resolution: .* keeps a stream of its own; use pre"):
        ModelConfig().replace(residual=residual, resolution="hourglass")


@pytest.mark.parametrize("block", ["parallel", "parallel_norms"])
def test_sublayers_of_one_connection_have_one_residual(block):
    """Another one of the feed-forward sublayer would be left out, save for its initial values."""
    with pytest.raises(ConfigError, match=rf"model\.feed_forward_residual: .* {block} share one .* is pre; leave"):
        ModelConfig().replace(block=block, residual="pre", feed_forward_residual="fixup")
    assert ModelConfig().replace(block=block, residual="pre", feed_forward_residual="pre").num_layers == 4


POSITIONS = ["rope", "xpos", "query_key_sinusoidal", "alibi", "contextual", "randomized(scheme=rope)"]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("block", ["fourier", "feed_forward_only"])
def test_positions_of_attention_need_attention(position, block):
    with pytest.raises(ConfigError, match=rf"model\.position: .* enters attention, and {block} has none; use learned"):
        ModelConfig().replace(position=position, block=block, causal=False)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
def test_positions_of_the_embedding_need_no_attention(position):
    assert not ModelConfig().replace(position=position, block="feed_forward_only").block.attends


def test_each_position_of_a_pattern_meets_attention():
    """In one of the layers that have it."""
    blocks = "block=[feed_forward_only, sequential]"
    with pytest.raises(ConfigError, match=r"model\.position: rope enters attention, and feed_forward_only has none"):
        ModelConfig().replace(position="none", pattern=f"pattern(position=[rope, none], {blocks})")
    for position, own in (("none", "position=[none, rope], "), ("rope", "")):
        assert ModelConfig().replace(position=position, pattern=f"pattern({own}{blocks})").pattern.period == 2


def test_a_pattern_and_the_model_do_not_contradict():
    """What the pattern says of every layer, the model does not say too."""
    pattern = Alternate(reach=(SlidingWindow(2), FullReach()))
    assert [str(ModelConfig(pattern=pattern).layer_config(i).reach) for i in range(3)] == [
        "sliding_window(size=2)",
        "full",
        "sliding_window(size=2)",
    ]
    with pytest.raises(ConfigError, match=r"model\.pattern: it sets reach everywhere, so sliding_window\(size=3\)"):
        ModelConfig(pattern=pattern, reach=SlidingWindow(3))
    with pytest.raises(ConfigError, match="3 layers, 3 of them distinct, are not whole turns of 2"):
        ModelConfig(pattern=pattern, num_layers=3)


@pytest.mark.parametrize("position", ["rope", "randomized(scheme=rope)"])
@pytest.mark.parametrize("first", ["rope", "randomized(scheme=rope)"])
def test_randomized_positions_are_those_of_all_layers(position, first):
    """A model draws them once, so that a pattern has no place for them, nor beside them."""
    choices = {"position": position, "pattern": f"pattern(position=[{first}, none])"}
    if position == first == "rope":
        ModelConfig().replace(**choices)
        return
    with pytest.raises(ConfigError, match=r"^model.pattern: randomized\(scheme=rope\) changes positions in all layers"):
        ModelConfig().replace(**choices)


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({}, r"model.weighting: recurrent does not compute softmax; use exact"),
        ({"weighting": "sigmoid"}, r"recurrent does not compute sigmoid; use exact"),
        ({"weighting": "linear", "causal": False}, r"model.attention: recurrent sums from left to right"),
        ({"weighting": "linear", "reach": "sliding_window(4)"}, r"model.reach: recurrent cannot leave out what"),
        ({"weighting": "retention", "attention_dropout": 0.1}, r"recurrent never forms the weights; use exact"),
    ],
)
def test_what_recurrent_attention_cannot_do(choices, reason):
    """It sums up what linear attention has passed, of a causal model that looks at all of it."""
    with pytest.raises(ConfigError, match=reason):
        ModelConfig().replace(position="none", attention="recurrent", **choices)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm": "rmsnorm"}, "model.norm: 'rmsnorm' is not Norm; a text becomes one by Norm.parse, or in replace"),
        ({"norm": RoPE()}, "model.norm: RoPE(.*) is not Norm"),
        ({"num_layers": 2.0}, "model.num_layers: 2.0 is not int"),
        ({"d_ff": "wide"}, "model.d_ff: 'wide' is not int or none"),
    ],
    ids=str,
)
def test_a_field_of_another_type(fields, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**fields)


def test_branches_are_counted_over_the_layers_of_a_pattern():
    """A layer of a pattern sees those of the whole stack, from which initial values are scaled."""
    layers = Alternate(block=(AttentionOnly(), Sequential(), FeedForwardOnly()))
    config = ModelConfig(num_layers=6, pattern=layers)
    assert [config.layer_config(layer).branches for layer in range(3)] == [8, 8, 8]
    assert config.branches == 8
    assert config.layer_config(0).residual_gain("attention") == 8**-0.5
