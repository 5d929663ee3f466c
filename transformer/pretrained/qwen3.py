"""Qwen 3 (2025)."""

from transformer.mixers.attention.head_norms import QKNorm
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row
from transformer.pretrained.fields import GATED, Field, attention_bias, choice, fixed, rope, same


def _eps() -> Field:
    """The epsilon of all norms, those of queries and keys too."""

    def read(fields):
        eps = float(fields.get("rms_norm_eps", 1e-6))
        return {"norm.eps": eps, "mixer.parts": (QKNorm(RMSNorm(eps=eps)),)}

    return Field(("rms_norm_eps",), read, lambda config: {"rms_norm_eps": config.norm.eps})


QWEN3 = Architecture(
    names=("Qwen3ForCausalLM",),
    model_type="qwen3",
    base=llama.BASE.replace({"mixer.parts": (QKNorm(RMSNorm()),)}),
    fields=(
        same("vocab_size", "vocab_size", default=151_936),
        same("hidden_size", "d_model", default=4096),
        same("intermediate_size", "feed_forward.d_ff", default=22_016),
        same("num_hidden_layers", "num_layers", default=32),
        same("num_attention_heads", "mixer.num_heads", default=32),
        same("num_key_value_heads", "mixer.num_kv_heads", default=32),
        same("head_dim", "mixer.head_dim", default=128),
        same("max_position_embeddings", "max_length", default=32_768),
        _eps(),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        attention_bias("attention_bias", default=False),
        rope(),
        fixed("use_sliding_window", False),
    ),
    neutral="sliding_window|max_window_layers|layer_types",
    rows=(
        *llama.LLAMA.rows,
        Row("blocks/attention/parts/qk_norm/query_scale", "model.layers.{layer}.self_attn.q_norm.weight"),
        Row("blocks/attention/parts/qk_norm/key_scale", "model.layers.{layer}.self_attn.k_norm.weight"),
    ),
)
