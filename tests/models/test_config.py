"""The model's configuration: sizes that follow from others, and errors that name the nearest size that fits."""

import itertools

import pytest

from transformer.activations.activation import GLU
from transformer.core.errors import ConfigError
from transformer.embeddings.head_transforms import DenseTransform
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.blocks import ParallelNorms
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import PatchConfig, VisionConfig
from transformer.models.vectors import VectorConfig
from transformer.norms.sequence_norm import SequenceLayerNorm
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import PostNorm
from transformer.residuals.scaled_branches import Fixup


def test_derived_sizes():
    """Sizes left open follow from the width and the heads; given ones are kept."""
    given = Attention(num_heads=6, num_kv_heads=3, head_dim=10), FeedForward(d_ff=70)
    for d_model, mixer, feed_forward, expected in (
        (48, Attention(num_heads=6), FeedForward(), (6, 8, 192)),
        (50, *given, (3, 10, 70)),
    ):
        config = ModelConfig(d_model=d_model, mixer=mixer, feed_forward=feed_forward)
        sizes = mixer.sizes(config)
        assert (sizes.num_kv_heads, sizes.head_dim, feed_forward.width(config)) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 128, "mixer.num_heads": 5}, "mixer.num_heads: 5 heads do not divide d_model 128; .* is 4"),
        ({"d_model": 96, "mixer.num_heads": 11}, "mixer.num_heads: 11 heads do not divide d_model 96; .* is 12"),
        ({"mixer.num_kv_heads": 3}, "mixer.num_kv_heads: 3 key-value heads do not divide 4 .* is 2"),
        ({"mixer.num_kv_heads": 8}, "mixer.num_kv_heads: 8 key-value heads do not divide 4 .* is 4"),
        ({"d_model": 12, "position": RoPE()}, "rope: fraction 1.0 of head_dim 3 is 3 features, not an even number"),
        ({"position": RoPE(fraction=0.01)}, "rope: fraction 0.01 of head_dim 32 is 0 features"),
        ({"dropout": 1.0}, r"model.dropout: 1.0 is not in \[0, 1\)"),
        ({"dropout": -0.1}, r"model.dropout: -0.1 is not in \[0, 1\)"),
    ],
)
def test_errors(changes, message):
    """One line: what does not fit, with what, and the nearest that does."""
    with pytest.raises(ConfigError, match=message):
        ModelConfig().replace(changes)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        *((ModelConfig, f"model.{name}") for name in ("vocab_size", "max_length", "num_layers", "d_model")),
        *((ModelConfig, f"mixer.{name}") for name in ("num_heads", "num_kv_heads", "head_dim")),
        *((kind, "feed_forward.d_ff") for kind in (ModelConfig, VisionConfig)),
        *((EncoderDecoderConfig, f"model.{name}") for name in ("source_vocab_size", "max_source_length")),
        *((EncoderDecoderConfig, f"model.{name}") for name in ("num_encoder_layers", "distinct_encoder_layers")),
        (ClassifierConfig, "model.num_classes"),
        *((VisionConfig, f"model.{name}") for name in ("patch_size", "num_classes")),
        *((VectorConfig, f"model.{name}") for name in ("features", "outputs")),
    ],
)
@pytest.mark.parametrize("value", [0, -2])
def test_sizes_are_positive(kind, path, value):
    """A size of zero or less is an error under the name of the field that was set."""
    with pytest.raises(ConfigError, match=rf"^{path}: {value} is not a positive number"):
        kind().replace({path.removeprefix("model."): value})


def test_more_heads_than_width():
    """Heads that leave no room for a feature are an error about a field that exists."""
    with pytest.raises(ConfigError, match=r"mixer\.num_heads"):
        ModelConfig(d_model=2, mixer=Attention(num_heads=4))


def test_rope_rotates_no_more_than_the_head():
    """A fraction above 1 is an error of the configuration, not of the first call."""
    with pytest.raises(ConfigError, match="rope"):
        ModelConfig(position=RoPE(fraction=1.5))


def test_head_dim_frees_the_width():
    """With head_dim set, the heads need not divide the width; the position is checked against head_dim."""
    config = ModelConfig(d_model=50, mixer=Attention(num_heads=4, head_dim=6))
    assert config.mixer.sizes(config).head_dim == 6
    with pytest.raises(ConfigError, match="head_dim 5"):
        ModelConfig(mixer=Attention(head_dim=5), position=RoPE())


def test_each_kind_of_sublayer_has_the_gains_of_its_own_connection():
    """Fixup's feed-forward sublayers begin at 0; attention beside it begins as usual."""
    config, usual = ModelConfig(feed_forward=FeedForward(residual=Fixup())), ModelConfig()
    assert config.feed_forward.gains(config) == (config.branches**-0.5, 0)
    assert config.output_gain(config.residual) == usual.output_gain(usual.residual) > 0
    assert config.inner_gain(config.residual) == 1


STREAMS = ["pre", "residual", "embedding_skip", "u_net", "hyper(streams=1)", "hyper", "hyper(streams=3)"]


@pytest.mark.parametrize(("own", "other"), list(itertools.permutations(STREAMS, 2)))
def test_connections_of_one_stack_share_a_stream(own, other):
    """What one leaves means something to the next: as many vectors of a token are not enough."""
    changes = {
        "feed_forward": {"feed_forward.residual": other},
        "model": {"pattern": [f"alternate('residual', ['{own}', '{other}'])"]},
    }
    for where, change in changes.items():
        with pytest.raises(ConfigError, match=rf"^{where}\.\w+: .* cannot share one stream; "):
            ModelConfig().replace(change, residual=own)


@pytest.mark.parametrize(
    ("own", "other"), [*zip(STREAMS, STREAMS, strict=True), ("post", "rezero"), ("hyper", "hyper(dynamic=False)")]
)
def test_connections_that_share_a_stream(own, other):
    """Norms and parameters may differ in one stack."""
    changes = {"feed_forward.residual": other, "pattern": [f"alternate('residual', ['{own}', '{other}'])"]}
    assert ModelConfig().replace(changes, residual=own).num_layers == 4


@pytest.mark.parametrize("residual", STREAMS[1:])
def test_a_shortened_stream_is_plain(residual):
    """Means of tokens are those of one vector of each."""
    with pytest.raises(ConfigError, match=r"model\.downsampling: .* keeps a stream of its own; use pre"):
        ModelConfig().replace(residual=residual, downsampling="hourglass")


POSITIONS = ["rope", "xpos", "query_key_sinusoidal", "alibi", "contextual", "randomized(scheme=rope)"]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("mixer", ["fourier", "none"])
def test_positions_of_attention_need_attention(position, mixer):
    with pytest.raises(
        ConfigError, match=rf"model\.position: .* attention, and the model has none \(mixer={mixer}\); use learned"
    ):
        ModelConfig().replace(position=position, mixer=mixer, causal=False)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
def test_positions_of_the_embedding_need_no_attention(position):
    assert ModelConfig().replace(position=position, mixer="none").attention is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"norm": "rmsnorm"},
            "model.norm: 'rmsnorm' is not Norm or none; a text becomes one by Norm.parse, or in replace",
        ),
        ({"norm": RoPE()}, "model.norm: RoPE(.*) is not Norm"),
        ({"num_layers": 2.0}, "model.num_layers: 2.0 is not int"),
        ({"feed_forward": FeedForward(d_ff="wide")}, "dense.d_ff: 'wide' is not int or none"),
    ],
    ids=str,
)
def test_a_field_of_another_type(fields, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**fields)


@pytest.mark.parametrize(
    ("kind", "changes", "match"),
    [
        (ModelConfig, {"block": ParallelNorms(), "residual": PostNorm()}, "use parallel"),
        (ModelConfig, {"head.transform": DenseTransform(activation=GLU())}, "takes 2 branches"),
        (ModelConfig, {"head.transform": DenseTransform(norm=SequenceLayerNorm())}, "whole sequences"),
        (ModelConfig, {"embedding.types": 0}, "embedding.types: 0 is not a positive"),
        (EncoderDecoderConfig, {"embedding.types": 2}, "embedding.types: an encoder-decoder"),
        (ClassifierConfig, {"head.bias": True}, "head.bias: True applies to logits of tokens"),
        (VisionConfig, {"embedding.types": 2}, r"embedding\(types=2\) applies to tokens"),
        (VisionConfig, {"embedding.dim": 4}, r"embedding\(dim=4\) applies to tokens"),
        (PatchConfig, {"embedding.unit_length": True}, r"embedding\(unit_length=True\) applies to tokens"),
        (PatchConfig, {"embedding.scaled": True}, r"embedding\(scaled=True\) applies to tokens"),
        (VectorConfig, {"embedding.dim": 4}, r"embedding\(dim=4\) applies to tokens, and this model reads vectors"),
        (
            VectorConfig,
            {"head.bias": True},
            "head.bias: True applies to logits of tokens, and this model reads vectors",
        ),
        (VectorConfig, {"mixer.sharing": "value_embeddings"}, "value_embeddings is for language models"),
    ],
)
def test_what_has_no_place_is_refused(kind, changes, match):
    with pytest.raises(ConfigError, match=match):
        kind().replace(changes)
