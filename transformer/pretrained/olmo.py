"""OLMo (Groeneveld et al. 2024) and OLMo 2 (2024)."""

from transformer.mixers.attention.head_norms import WideQKNorm
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, norm
from transformer.pretrained.fields import GATED, attention_bias, choice, fixed, kv_heads, norms_eps, same, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.residuals.residual import BranchNorm

_FIELDS = (
    *sizes(vocab_size=50_304, d_model=4096, d_ff=11_008, num_layers=32, num_heads=32, max_length=2048),
    kv_heads(default=None),
    same("tie_word_embeddings", "head.tied", default=False),
    choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
    attention_bias("attention_bias", default=False),
    rope(),
)

OLMO = Architecture(
    names=("OlmoForCausalLM",),
    model_type="olmo",
    base=llama.BASE.replace(norm=LayerNorm(scale=False, bias=False)),
    fields=(*_FIELDS, fixed("clip_qkv", None)),
    rows=llama.LLAMA.rows,
)
OLMO2 = Architecture(
    names=("Olmo2ForCausalLM",),
    model_type="olmo2",
    base=llama.BASE.replace({"mixer.parts": (WideQKNorm(RMSNorm()),)}, residual=BranchNorm()),
    fields=(*_FIELDS, norms_eps("rms_norm_eps", WideQKNorm(RMSNorm()), default=1e-5)),
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.head_norms("wide_qk_norm"),
        *llama.FEED_FORWARD,
        *norm("blocks/attention_residual/norms/branch", f"{llama.LAYER}.post_attention_layernorm"),
        *norm("blocks/feed_forward_residual/norms/branch", f"{llama.LAYER}.post_feedforward_layernorm"),
    ),
)
