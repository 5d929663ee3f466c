"""Mistral (Jiang et al. 2023)."""

from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import GATED, choice, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import window

MISTRAL = Architecture(
    names=("MistralForCausalLM",),
    model_type="mistral",
    base=llama.BASE,
    fields=(
        *sizes(vocab_size=32_000, d_model=4096, d_ff=14_336, num_layers=32, num_heads=32, max_length=131_072),
        kv_heads(default=8),
        same("head_dim", "mixer.head_dim", default=None),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        window(default=4096),
        rope(),
    ),
    rows=llama.LLAMA.rows,
)
