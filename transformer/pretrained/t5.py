"""T5 (Raffel et al. 2019) and T5 v1.1 (Shazeer 2020)."""

from collections.abc import Iterator

from transformer.activations.activation import GELU, GLU, ReLU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.projections import ConstantScale
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.norms.norm import RMSNorm
from transformer.positions.relative import T5Bias
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, GATED, Field, choice, fixed, same

_GATED = {f"gated-{name}": gated for name, gated in GATED.items()} | {"gated-gelu": GLU(gate=GELU(tanh=True))}


def _scale_and_tie() -> Field:
    """The factor 1/√d_model on logits, present where the file says so or, in older files, where tables are tied."""

    def read(fields):
        tied = fields.get("tie_word_embeddings", True)
        scaled = fields.get("scale_decoder_outputs", tied)
        return {"head.scale": fields.get("d_model", 512) ** -0.5 if scaled else 1.0, "head.tied": tied}

    def write(config):
        return {"scale_decoder_outputs": config.head.scale != 1.0, "tie_word_embeddings": config.head.tied}

    return Field(("scale_decoder_outputs", "tie_word_embeddings"), read, write)


def _side(ours: str) -> Iterator[Row]:
    """The tensors of the encoder or of the decoder, where attention to the source precedes feed-forward."""
    layer, attentions = f"{ours}.block.{{layer}}.layer", {"attention": "0.SelfAttention"}
    attentions |= {"cross_attention": "1.EncDecAttention"} if ours == "decoder" else {}
    for number, (name, theirs) in enumerate(attentions.items()):
        yield from norm(f"{ours}/blocks/{name}_residual/norms/input", f"{layer}.{number}.layer_norm")
        for role, letter in {"query": "q", "key": "k", "value": "v", "out": "o"}.items():
            yield from dense(f"{ours}/blocks/{name}/{role}", f"{layer}.{theirs}.{letter}")
    last, feed_forward = len(attentions), f"{ours}/blocks/feed_forward"
    gate = f"{layer}.{last}.DenseReluDense.wi"
    yield Row(f"{feed_forward}/branches/0/kernel", f"{gate}.weight", "F D -> D F", when=lambda c: not _gated(c))
    yield Row(f"{feed_forward}/branches/0/kernel", f"{gate}_0.weight", "F D -> D F", when=_gated)
    yield Row(f"{feed_forward}/branches/1/kernel", f"{gate}_1.weight", "F D -> D F")
    yield from dense(f"{feed_forward}/out", f"{layer}.{last}.DenseReluDense.wo")
    yield from norm(f"{feed_forward}_residual/norms/input", f"{layer}.{last}.layer_norm")
    yield Row(f"{ours}/position/table", f"{ours}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    yield from norm(f"{ours}/final_norm", f"{ours}.final_layer_norm")


def _gated(config) -> bool:
    return config.feed_forward.activation.branches == 2


_SIDES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")

T5 = Architecture(
    names=("T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel"),
    model_type="t5",
    base=EncoderDecoderConfig(
        norm=RMSNorm(),
        position=T5Bias(),
        mixer=Attention(scale=ConstantScale(1.0)),
        feed_forward=FeedForward(activation=ReLU()),
        share_embeddings=True,
    ),
    fields=(
        same("vocab_size", "vocab_size", "source_vocab_size", default=32_128),
        same("n_positions", "max_length", "max_source_length", default=512),
        same("d_model", "d_model", default=512),
        same("d_kv", "mixer.head_dim", default=64),
        same("d_ff", "feed_forward.d_ff", default=2048),
        same("num_heads", "mixer.num_heads", default=8),
        same("num_layers", "num_encoder_layers", default=6),
        same(("num_decoder_layers", "num_layers"), "num_layers", default=6),
        same("relative_attention_num_buckets", "position.num_buckets", default=32),
        same("relative_attention_max_distance", "position.max_distance", default=128),
        same("layer_norm_epsilon", "norm.eps", default=1e-6),
        choice("feed_forward_proj", "feed_forward.activation", ACTIVATIONS | _GATED, default="relu"),
        _scale_and_tie(),
        fixed("is_encoder_decoder", True),
        fixed("is_decoder", False),
    ),
    neutral="dense_act_fn|is_gated_act",
    rows=(
        Row("embedding/table", "shared.weight", also=(*_SIDES, "lm_head.weight")),
        Row("output/table", "lm_head.weight"),
        *_side("encoder"),
        *_side("decoder"),
    ),
    ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)
