"""Qwen 3 with experts (2025)."""

from transformer.activations.activation import GLU, SiLU
from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.head_norms import QKNorm
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, experts
from transformer.pretrained.fields import (
    GATED,
    attention_bias,
    choice,
    fixed,
    kv_heads,
    norms_eps,
    same,
    several_experts,
)
from transformer.pretrained.rotary_fields import rope

_EXPERTS = TopKExperts(128, top=8, activation=GLU(gate=SiLU()))

QWEN3_MOE = Architecture(
    names=("Qwen3MoeForCausalLM",),
    model_type="qwen3_moe",
    base=llama.BASE.replace({"mixer.parts": (QKNorm(RMSNorm()),)}, feed_forward=_EXPERTS),
    fields=(
        same("vocab_size", "vocab_size", default=151_936),
        same("hidden_size", "d_model", default=2048),
        same("moe_intermediate_size", "feed_forward.d_ff", default=768),
        same("num_hidden_layers", "num_layers", default=24),
        same("num_attention_heads", "mixer.num_heads", default=32),
        kv_heads(default=4),
        same("head_dim", "mixer.head_dim", default=None),
        same("max_position_embeddings", "max_length", default=32_768),
        same(("num_experts", "num_local_experts"), "feed_forward.num_experts", default=128),
        several_experts("num_experts_per_tok", default=8),
        norms_eps("rms_norm_eps", QKNorm(RMSNorm()), default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        attention_bias("attention_bias", default=False),
        rope(),
        # The weights of the chosen experts sum to 1.
        fixed("norm_topk_prob", True, default=False),
        fixed("decoder_sparse_step", 1),
        fixed("mlp_only_layers", []),
        fixed("use_sliding_window", False),
    ),
    neutral="intermediate_size|sliding_window|max_window_layers|layer_types",
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.head_norms("qk_norm"),
        *llama.NORMS,
        *experts(f"{llama.LAYER}.mlp", "gate_proj", "up_proj", "down_proj"),
    ),
)
