"""Helium (Kyutai 2025)."""

from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import GATED, choice, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope

HELIUM = Architecture(
    names=("HeliumForCausalLM",),
    model_type="helium",
    base=llama.BASE,
    fields=(
        *sizes(vocab_size=48_000, d_model=2560, d_ff=7040, num_layers=24, num_heads=20, max_length=4096),
        kv_heads(default=20),
        same("head_dim", "mixer.head_dim", default=128),
        same("rms_norm_eps", "norm.eps", default=1e-8),
        same("tie_word_embeddings", "head.tied", default=False),
        same("mlp_bias", "feed_forward.bias", default=False),
        choice("attention_bias", "mixer.bias", {False: (), True: ("query", "key", "value")}, default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        rope(base=1e5, interleaved=True),
    ),
    rows=llama.LLAMA.rows,
)
