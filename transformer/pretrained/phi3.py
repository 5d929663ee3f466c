"""Phi-3 with its shorter context, and Phi-4 (2024)."""

from transformer.pretrained import llama
from transformer.pretrained.architecture import QKV, Architecture, joined
from transformer.pretrained.fields import GATED, choice, fixed, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import window

PHI3 = Architecture(
    names=("Phi3ForCausalLM",),
    model_type="phi3",
    base=llama.BASE,
    fields=(
        *sizes(vocab_size=32_064, d_model=3072, d_ff=8192, num_layers=32, num_heads=32, max_length=4096),
        kv_heads(default=None),
        same("rms_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        window(),
        rope(fraction=1.0, scaled=False),
        fixed("attention_bias", False),
    ),
    neutral="original_max_position_embeddings",  # read with scaled positions, which are refused
    rows=(
        *llama.EMBEDDINGS,
        *joined(QKV, f"{llama.LAYER}.self_attn.qkv_proj"),
        *llama.OUT,
        *joined(llama.BRANCHES, f"{llama.LAYER}.mlp.gate_up_proj"),
        *llama.DOWN,
        *llama.NORMS,
    ),
)
