"""BLOOM (BigScience 2022)."""

from transformer.activations.activation import GELU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.relative import ALiBi
from transformer.pretrained.architecture import QKV, Architecture, Row, dense, joined, norm
from transformer.pretrained.fields import BIASES, fixed, same

_LAYER = "transformer.h.{layer}"

BLOOM = Architecture(
    names=("BloomForCausalLM", "BloomModel"),
    model_type="bloom",
    base=ModelConfig(
        norm=LayerNorm(),
        embedding_norm=LayerNorm(),
        position=ALiBi(),
        mixer=Attention(bias=BIASES),
        feed_forward=FeedForward(activation=GELU(tanh=True), bias=True),
    ),
    fields=(
        same("vocab_size", "vocab_size", default=250_880),
        same("seq_length", "max_length", default=2048),
        same(("hidden_size", "n_embed"), "d_model", default=64),
        same(("n_layer", "num_hidden_layers"), "num_layers", default=2),
        same(("n_head", "num_attention_heads"), "mixer.num_heads", default=8),
        same("layer_norm_epsilon", "norm.eps", "embedding_norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=True),
        fixed("n_inner", None),
        fixed("apply_residual_connection_post_layernorm", False),
    ),
    neutral=r"slow_but_exact|attention_softmax_in_fp32|(bias_dropout|masked_softmax)_fusion|offset_alibi|skip_bias_\w+",
    rows=(
        Row("embedding/table", "transformer.word_embeddings.weight", also=("lm_head.weight",)),
        *norm("embedding_norm", "transformer.word_embeddings_layernorm"),
        *norm("final_norm", "transformer.ln_f"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.input_layernorm"),
        *joined(QKV, f"{_LAYER}.self_attention.query_key_value", "(H [n] K)"),
        *dense("blocks/attention/out", f"{_LAYER}.self_attention.dense"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.post_attention_layernorm"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.mlp.dense_h_to_4h"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.dense_4h_to_h"),
    ),
    renames=((r"^(word_embeddings|word_embeddings_layernorm|h|ln_f)\.", r"transformer.\1."),),
)
