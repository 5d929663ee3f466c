"""Qwen 3 (2025)."""

from transformer.mixers.attention.head_norms import QKNorm
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama, qwen2
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import GATED, attention_bias, choice, kv_heads, norms_eps, same
from transformer.pretrained.rotary_fields import rope

QWEN3 = Architecture(
    names=("Qwen3ForCausalLM",),
    model_type="qwen3",
    base=llama.BASE.replace({"mixer.parts": (QKNorm(RMSNorm()),)}),
    fields=(
        *qwen2.SIZES,
        kv_heads(default=32),
        same("head_dim", "mixer.head_dim", default=128),
        norms_eps("rms_norm_eps", QKNorm(RMSNorm()), default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        attention_bias("attention_bias", default=False),
        qwen2.upper_windows(),
        rope(),
    ),
    rows=(*llama.LLAMA.rows, *llama.head_norms("qk_norm")),
)
