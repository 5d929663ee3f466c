"""BERT (Devlin et al. 2018): the masked language model, and the classifier of texts."""

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

_LAYER = "bert.encoder.layer.{layer}"
_BASE = {
    "causal": False,
    "norm": LayerNorm(),
    "residual": PostNorm(),
    "embedding_norm": LayerNorm(),
    "position": Learned(),
    "mixer": Attention(bias=BIASES),
    "feed_forward": FeedForward(activation=GELU(), bias=True),
}
_FIELDS = (
    same("vocab_size", "vocab_size", default=30_522),
    same("max_position_embeddings", "max_length", default=512),
    same("type_vocab_size", "embedding.types", default=2),
    same("hidden_size", "d_model", default=768),
    same("num_hidden_layers", "num_layers", default=12),
    same("num_attention_heads", "mixer.num_heads", default=12),
    same("intermediate_size", "feed_forward.d_ff", default=3072),
    choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="gelu"),
    fixed("position_embedding_type", "absolute"),
    fixed("is_decoder", False),
    fixed("add_cross_attention", False),
)
_ROWS = (
    Row("embedding/table", "bert.embeddings.word_embeddings.weight"),
    Row("embedding/types", "bert.embeddings.token_type_embeddings.weight"),
    Row("position/table", "bert.embeddings.position_embeddings.weight"),
    *norm("embedding_norm", "bert.embeddings.LayerNorm"),
    *dense("blocks/attention/query", f"{_LAYER}.attention.self.query"),
    *dense("blocks/attention/key", f"{_LAYER}.attention.self.key"),
    *dense("blocks/attention/value", f"{_LAYER}.attention.self.value"),
    *dense("blocks/attention/out", f"{_LAYER}.attention.output.dense"),
    *norm("blocks/attention_residual/norms/output", f"{_LAYER}.attention.output.LayerNorm"),
    *dense("blocks/feed_forward/branches/0", f"{_LAYER}.intermediate.dense"),
    *dense("blocks/feed_forward/out", f"{_LAYER}.output.dense"),
    *norm("blocks/feed_forward_residual/norms/output", f"{_LAYER}.output.LayerNorm"),
)
_RENAMES = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
_HEAD = "cls.predictions.transform"

BERT = Architecture(
    names=("BertForMaskedLM", "BertForPreTraining"),
    model_type="bert",
    base=ModelConfig(**_BASE, head=Head(transform=DenseTransform(), bias=True)),
    fields=(
        *_FIELDS,
        same("layer_norm_eps", "norm.eps", "embedding_norm.eps", "head.transform.norm.eps", default=1e-12),
        choice("hidden_act", "head.transform.activation", ACTIVATIONS, default="gelu"),
        fixed("tie_word_embeddings", True),
    ),
    rows=(
        *_ROWS,
        Row("logits/transform/kernel", f"{_HEAD}.dense.weight", "F D -> D F"),
        Row("logits/transform/bias", f"{_HEAD}.dense.bias"),
        Row("logits/transform/norm_scale", f"{_HEAD}.LayerNorm.weight"),
        Row("logits/transform/norm_bias", f"{_HEAD}.LayerNorm.bias"),
        Row("logits/output/bias", "cls.predictions.bias", also=("cls.predictions.decoder.bias",)),
    ),
    renames=_RENAMES,
    ignored=r"bert\.(pooler\..*|embeddings\.position_ids)|cls\.(seq_relationship\..*|predictions\.decoder\.weight)",
)

BERT_CLASSIFIER = Architecture(
    names=("BertForSequenceClassification",),
    model_type="bert",
    base=ClassifierConfig(**_BASE, pooling=FirstToken()),
    fields=(*_FIELDS, same("layer_norm_eps", "norm.eps", "embedding_norm.eps", default=1e-12), labels()),
    neutral="tie_word_embeddings",
    rows=(
        *_ROWS,
        Row("pooling_params/kernel", "bert.pooler.dense.weight", "F D -> D F"),
        Row("pooling_params/bias", "bert.pooler.dense.bias"),
        *dense("head", "classifier"),
    ),
    renames=_RENAMES,
    ignored=r"bert\.embeddings\.position_ids",
)
