"""Mixtral (Jiang et al. 2024)."""

from transformer.activations.activation import GLU, SiLU
from transformer.feed_forwards.experts import TopKExperts
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, experts
from transformer.pretrained.fields import GATED, choice, kv_heads, same, several_experts
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import window

MIXTRAL = Architecture(
    names=("MixtralForCausalLM",),
    model_type="mixtral",
    base=llama.BASE.replace(feed_forward=TopKExperts(8, top=2, activation=GLU(gate=SiLU()))),
    fields=(
        same("vocab_size", "vocab_size", default=32_000),
        same("hidden_size", "d_model", default=4096),
        same("intermediate_size", "feed_forward.d_ff", default=14_336),
        same("num_hidden_layers", "num_layers", default=32),
        same("num_attention_heads", "mixer.num_heads", default=32),
        kv_heads(default=8),
        same("head_dim", "mixer.head_dim", default=None),
        same("max_position_embeddings", "max_length", default=131_072),
        same("num_local_experts", "feed_forward.num_experts", default=8),
        several_experts("num_experts_per_tok", default=2),
        same("rms_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        window(),
        rope(base=1e6),
    ),
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.NORMS,
        *experts(f"{llama.LAYER}.block_sparse_moe", "w1", "w3", "w2"),
    ),
)
