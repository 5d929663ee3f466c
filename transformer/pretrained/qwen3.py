"""Qwen 3 (2025)."""

from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, norm
from transformer.pretrained.fields import GATED, attention_bias, choice, fixed, rope, same

QWEN3 = Architecture(
    names=("Qwen3ForCausalLM",),
    model_type="qwen3",
    base=llama.BASE.replace(qk_norm=RMSNorm()),
    fields=(
        same("vocab_size", "vocab_size", default=151_936),
        same("hidden_size", "d_model", default=4096),
        same("intermediate_size", "d_ff", default=22_016),
        same("num_hidden_layers", "num_layers", default=32),
        same("num_attention_heads", "num_heads", default=32),
        same("num_key_value_heads", "num_kv_heads", default=32),
        same("head_dim", "head_dim", default=128),
        same("max_position_embeddings", "max_length", default=32_768),
        same("rms_norm_eps", "norm.eps", "qk_norm.eps", default=1e-6),
        same("tie_word_embeddings", "tie_embeddings", default=False),
        choice("hidden_act", "activation", GATED, default="silu"),
        attention_bias("attention_bias", default=False),
        rope(),
        fixed("use_sliding_window", False),
    ),
    neutral="sliding_window|max_window_layers|layer_types",
    rows=(
        *llama.LLAMA.rows,
        *norm("blocks/attention/query_norm", "model.layers.{layer}.self_attn.q_norm"),
        *norm("blocks/attention/key_norm", "model.layers.{layer}.self_attn.k_norm"),
    ),
)
