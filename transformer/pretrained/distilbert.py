"""DistilBERT (Sanh et al. 2019): the masked language model."""

from transformer.norms.norm import LayerNorm
from transformer.pretrained import bert
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, choice, fixed, same

_LAYER = "distilbert.transformer.layer.{layer}"
_NORM = LayerNorm(eps=1e-12)

DISTILBERT = Architecture(
    names=("DistilBertForMaskedLM",),
    model_type="distilbert",
    base=bert.BERT.base.replace({"norm": _NORM, "embedding_norm": _NORM, "head.transform.norm": _NORM}),
    fields=(
        same("vocab_size", "vocab_size", default=30_522),
        same("max_position_embeddings", "max_length", default=512),
        same("dim", "d_model", default=768),
        same("hidden_dim", "feed_forward.d_ff", default=3072),
        same("n_layers", "num_layers", default=6),
        same("n_heads", "mixer.num_heads", default=12),
        choice("activation", "feed_forward.activation", ACTIVATIONS, default="gelu"),
        choice("activation", "head.transform.activation", ACTIVATIONS, default="gelu"),
        fixed("tie_word_embeddings", True),
    ),
    neutral="sinusoidal_pos_embds|tie_weights_",  # the first is where training began
    rows=(
        Row("embedding/table", "distilbert.embeddings.word_embeddings.weight", also=("vocab_projector.weight",)),
        Row("position/table", "distilbert.embeddings.position_embeddings.weight"),
        *norm("embedding_norm", "distilbert.embeddings.LayerNorm"),
        *dense("blocks/attention/query", f"{_LAYER}.attention.q_lin"),
        *dense("blocks/attention/key", f"{_LAYER}.attention.k_lin"),
        *dense("blocks/attention/value", f"{_LAYER}.attention.v_lin"),
        *dense("blocks/attention/out", f"{_LAYER}.attention.out_lin"),
        *norm("blocks/attention_residual/norms/output", f"{_LAYER}.sa_layer_norm"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.ffn.lin1"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.ffn.lin2"),
        *norm("blocks/feed_forward_residual/norms/output", f"{_LAYER}.output_layer_norm"),
        *bert.head_rows("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ),
)
