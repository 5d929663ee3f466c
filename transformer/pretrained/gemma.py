"""Gemma (2024)."""

from transformer.activations.activation import GELU, GLU
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import GATED, attention_bias, choice, fixed, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope

_ACTIVATION = GLU(gate=GELU(tanh=True))
BASE = llama.BASE.replace(
    {"embedding.scaled": True, "feed_forward.activation": _ACTIVATION}, norm=RMSNorm(zero_centered=True)
)

GEMMA = Architecture(
    names=("GemmaForCausalLM",),
    model_type="gemma",
    base=BASE,
    fields=(
        *sizes(vocab_size=256_000, d_model=3072, d_ff=24_576, num_layers=28, num_heads=16, max_length=8192),
        kv_heads(default=16),
        same("head_dim", "mixer.head_dim", default=256),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=True),
        # The word of the first files for the approximation by tanh.
        choice(
            "hidden_act",
            "feed_forward.activation",
            GATED | {"gelu": _ACTIVATION},
            default="gelu_pytorch_tanh",
        ),
        attention_bias("attention_bias", default=False),
        rope(),
        fixed("use_bidirectional_attention", None),
    ),
    neutral="hidden_activation",
    rows=llama.LLAMA.rows,
)
