"""BART (Lewis et al. 2019)."""

from collections.abc import Iterator

from transformer.activations.activation import GELU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, BIASES, Field, alike, choice, fixed, same
from transformer.residuals.residual import PostNorm

BASE = EncoderDecoderConfig(
    norm=LayerNorm(),
    residual=PostNorm(),
    mixer=Attention(bias=BIASES),
    feed_forward=FeedForward(activation=GELU(), bias=True),
    share_embeddings=True,
    head=Head(bias=True),
)
FIELDS = (
    same("max_position_embeddings", "max_length", "max_source_length", default=1024),
    same("d_model", "d_model", default=1024),
    same("encoder_layers", "num_encoder_layers", default=12),
    same("decoder_layers", "num_layers", default=12),
    alike(("decoder_attention_heads", "encoder_attention_heads"), "mixer.num_heads", default=16),
    alike(("decoder_ffn_dim", "encoder_ffn_dim"), "feed_forward.d_ff", default=4096),
    choice("activation_function", "feed_forward.activation", ACTIVATIONS, default="gelu"),
    same("scale_embedding", "embedding.scaled", default=False),
    same("tie_word_embeddings", "head.tied", default=True),
    fixed("add_bias_logits", False),
    fixed("is_encoder_decoder", True),
    fixed("is_decoder", False),
)
NEUTRAL = "num_hidden_layers|extra_pos_embeddings"
RENAMES = ((r"^(shared|encoder|decoder)\.", r"model.\1."),)


def normalized(*, before: bool) -> tuple[Field, ...]:
    """Fields of older files that say where norms are."""
    return fixed("normalize_before", before), fixed("add_final_layer_norm", before)


def side(ours: str, *, where: str = "output") -> Iterator[Row]:
    """The tensors of the encoder's layers, or of the decoder's; `where`: which norm of a residual connection it is."""
    layer = f"model.{ours}.layers.{{layer}}"
    for name, theirs in {"attention": "self_attn", "cross_attention": "encoder_attn"}.items():
        for role, letters in {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}.items():
            yield from dense(f"{ours}/blocks/{name}/{role}", f"{layer}.{theirs}.{letters}")
        yield from norm(f"{ours}/blocks/{name}_residual/norms/{where}", f"{layer}.{theirs}_layer_norm")
    yield from dense(f"{ours}/blocks/feed_forward/branches/0", f"{layer}.fc1")
    yield from dense(f"{ours}/blocks/feed_forward/out", f"{layer}.fc2")
    yield from norm(f"{ours}/blocks/feed_forward_residual/norms/{where}", f"{layer}.final_layer_norm")


BIAS = Row("logits/output/bias", "final_logits_bias", "1 V -> V", optional=True)
ROWS = (BIAS, *side("encoder"), *side("decoder"))
_SIDES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
TABLE = Row("embedding/table", "model.shared.weight", also=(*_SIDES, "lm_head.weight"))
EMBEDDINGS = (
    TABLE,
    # The first two rows of the table were reserved for padding.
    Row("encoder/position/table", "model.encoder.embed_positions.weight", skip=2),
    Row("decoder/position/table", "model.decoder.embed_positions.weight", skip=2),
    *norm("encoder/embedding_norm", "model.encoder.layernorm_embedding"),
    *norm("decoder/embedding_norm", "model.decoder.layernorm_embedding"),
)

BART = Architecture(
    names=("BartForConditionalGeneration", "BartModel"),
    model_type="bart",
    base=BASE.replace(position=Learned(), embedding_norm=LayerNorm()),
    fields=(
        same("vocab_size", "vocab_size", "source_vocab_size", default=50_265),
        fixed("normalize_embedding", True),
        fixed("static_position_embeddings", False),
        *normalized(before=False),
        *FIELDS,
    ),
    neutral=NEUTRAL,
    rows=(*EMBEDDINGS, *ROWS),
    renames=RENAMES,
    ignored=r"model\.(encoder|decoder)\.version",
)
