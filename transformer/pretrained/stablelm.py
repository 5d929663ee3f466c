"""StableLM (Bellagente et al. 2024)."""

from transformer.models.blocks import Parallel, Sequential
from transformer.norms.norm import LayerNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import GATED, choice, fixed, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope

STABLELM = Architecture(
    names=("StableLmForCausalLM",),
    model_type="stablelm",
    base=llama.BASE.replace(norm=LayerNorm()),
    fields=(
        *sizes(vocab_size=50_304, d_model=2560, d_ff=6912, num_layers=32, num_heads=32, max_length=4096),
        kv_heads(default=32),
        same("layer_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        choice("use_qkv_bias", "mixer.bias", {False: (), True: ("query", "key", "value")}, default=False),
        choice("use_parallel_residual", "block", {False: Sequential(), True: Parallel()}, default=False),
        rope(fraction=0.25),
        fixed("qk_layernorm", False),
    ),
    rows=llama.LLAMA.rows,
)
