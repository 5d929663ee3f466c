"""Nemotron-4 and Minitron (2024)."""

from transformer.activations.activation import SquaredReLU
from transformer.norms.norm import LayerNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, dense
from transformer.pretrained.fields import ACTIVATIONS, attention_bias, choice, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope

NEMOTRON = Architecture(
    names=("NemotronForCausalLM",),
    model_type="nemotron",
    base=llama.BASE.replace({"feed_forward.activation": SquaredReLU()}, norm=LayerNorm(zero_centered=True)),
    fields=(
        *sizes(vocab_size=256_000, d_model=6144, d_ff=24_576, num_layers=32, num_heads=48, max_length=4096),
        kv_heads(default=None),
        same("head_dim", "mixer.head_dim", default=None),
        same("norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        same("mlp_bias", "feed_forward.bias", default=False),
        attention_bias("attention_bias", default=False),
        choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="relu2"),
        rope(fraction=0.5),
    ),
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *dense("blocks/feed_forward/branches/0", f"{llama.LAYER}.mlp.up_proj"),
        *llama.DOWN,
        *llama.NORMS,
    ),
)
