"""GLM-4 (2024), and its later form of 2025, which normalizes outputs too."""

from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, joined, norm
from transformer.pretrained.fields import GATED, choice, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.residuals.residual import SandwichNorm

_FIELDS = (
    *sizes(vocab_size=151_552, d_model=4096, d_ff=13_696, num_layers=40, num_heads=32, max_length=131_072),
    kv_heads(default=2),
    same("head_dim", "mixer.head_dim", default=128),
    same("rms_norm_eps", "norm.eps", default=1.5625e-7),
    same("tie_word_embeddings", "head.tied", default=False),
    choice("attention_bias", "mixer.bias", {False: (), True: ("query", "key", "value")}, default=True),
    choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
    rope(fraction=0.5, interleaved=True),
)
_ROWS = (
    *llama.EMBEDDINGS,
    *llama.ATTENTION,
    *joined(llama.BRANCHES, f"{llama.LAYER}.mlp.gate_up_proj"),
    *llama.DOWN,
    *llama.NORMS,
)

GLM = Architecture(names=("GlmForCausalLM",), model_type="glm", base=llama.BASE, fields=_FIELDS, rows=_ROWS)
GLM4 = Architecture(
    names=("Glm4ForCausalLM",),
    model_type="glm4",
    base=llama.BASE.replace(residual=SandwichNorm()),
    fields=_FIELDS,
    rows=(
        *_ROWS,
        *norm("blocks/attention_residual/norms/branch", f"{llama.LAYER}.post_self_attn_layernorm"),
        *norm("blocks/feed_forward_residual/norms/branch", f"{llama.LAYER}.post_mlp_layernorm"),
    ),
)
