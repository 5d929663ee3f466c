"""BERT (Devlin et al. 2018): the masked language model, and the classifier of texts."""

from collections.abc import Iterator

from transformer.activations.activation import GELU
from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.pooling import FirstToken
from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, BIASES, choice, fixed, labels, same
from transformer.residuals.residual import PostNorm

BASE = {
    "causal": False,
    "norm": LayerNorm(),
    "residual": PostNorm(),
    "embedding_norm": LayerNorm(),
    "position": Learned(),
    "mixer": Attention(bias=BIASES),
    "feed_forward": FeedForward(activation=GELU(), bias=True),
}
FIELDS = (
    same("vocab_size", "vocab_size", default=30_522),
    same("type_vocab_size", "embedding.types", default=2),
    same("hidden_size", "d_model", default=768),
    same("num_hidden_layers", "num_layers", default=12),
    same("num_attention_heads", "mixer.num_heads", default=12),
    same("intermediate_size", "feed_forward.d_ff", default=3072),
    choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="gelu"),
    fixed("is_decoder", False),
    fixed("add_cross_attention", False),
)
"""Fields of BERT and its relatives, but for positions and the head."""
HEAD_FIELDS = (
    same("layer_norm_eps", "norm.eps", "embedding_norm.eps", "head.transform.norm.eps", default=1e-12),
    choice("hidden_act", "head.transform.activation", ACTIVATIONS, default="gelu"),
    fixed("tie_word_embeddings", True),
)
"""Those of the masked language model."""
LABEL_FIELDS = (same("layer_norm_eps", "norm.eps", "embedding_norm.eps", default=1e-12), labels())
"""Those of the classifier."""
_POSITIONS = (
    same("max_position_embeddings", "max_length", default=512),
    fixed("position_embedding_type", "absolute"),
)


def rows(prefix: str, *output: str) -> Iterator[Row]:
    """The tensors of the encoder, whose positions a relative may not have; `output`: other names of its table."""
    layer = f"{prefix}.encoder.layer.{{layer}}"
    yield Row("embedding/table", f"{prefix}.embeddings.word_embeddings.weight", also=output)
    yield Row("embedding/types", f"{prefix}.embeddings.token_type_embeddings.weight")
    yield from norm("embedding_norm", f"{prefix}.embeddings.LayerNorm")
    for role in ("query", "key", "value"):
        yield from dense(f"blocks/attention/{role}", f"{layer}.attention.self.{role}")
    yield from dense("blocks/attention/out", f"{layer}.attention.output.dense")
    yield from norm("blocks/attention_residual/norms/output", f"{layer}.attention.output.LayerNorm")
    yield from dense("blocks/feed_forward/branches/0", f"{layer}.intermediate.dense")
    yield from dense("blocks/feed_forward/out", f"{layer}.output.dense")
    yield from norm("blocks/feed_forward_residual/norms/output", f"{layer}.output.LayerNorm")


def transform_rows(theirs: str, normed: str) -> Iterator[Row]:
    """The tensors of what is done to the states before they become logits: the matrix and its norm."""
    yield Row("logits/transform/kernel", f"{theirs}.weight", "F D -> D F")
    yield Row("logits/transform/bias", f"{theirs}.bias")
    yield Row("logits/transform/norm_scale", f"{normed}.weight")
    yield Row("logits/transform/norm_bias", f"{normed}.bias")


def head_rows(theirs: str, normed: str, bias: str) -> Iterator[Row]:
    """The tensors of the head for masked tokens: the same, and the bias of the logits."""
    yield from transform_rows(theirs, normed)
    yield Row("logits/output/bias", bias, also=(f"{bias.rpartition('.')[0]}.decoder.bias",))


MASKED_ROWS = tuple(
    head_rows("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")
)
OUTPUT = "cls.predictions.decoder.weight"
NEUTRAL = r"directionality|pooler_\w+"
RENAMES = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
_POSITION = Row("position/table", "bert.embeddings.position_embeddings.weight")

BERT = Architecture(
    names=("BertForMaskedLM", "BertForPreTraining"),
    model_type="bert",
    base=ModelConfig(**BASE, head=Head(transform=DenseTransform(), bias=True)),
    fields=(*FIELDS, *_POSITIONS, *HEAD_FIELDS),
    neutral=NEUTRAL,
    rows=(*rows("bert", OUTPUT), _POSITION, *MASKED_ROWS),
    renames=RENAMES,
    ignored=r"bert\.(pooler\..*|embeddings\.position_ids)|cls\.seq_relationship\..*",
)

BERT_CLASSIFIER = Architecture(
    names=("BertForSequenceClassification",),
    model_type="bert",
    base=ClassifierConfig(**BASE, pooling=FirstToken()),
    fields=(*FIELDS, *_POSITIONS, *LABEL_FIELDS),
    neutral=f"{NEUTRAL}|tie_word_embeddings",
    rows=(
        *rows("bert"),
        _POSITION,
        Row("pooling_params/kernel", "bert.pooler.dense.weight", "F D -> D F"),
        Row("pooling_params/bias", "bert.pooler.dense.bias"),
        *dense("head", "classifier"),
    ),
    renames=RENAMES,
    ignored=r"bert\.embeddings\.position_ids",
)
