"""OLMoE (Muennighoff et al. 2024)."""

from transformer.activations.activation import GLU, SiLU
from transformer.feed_forwards.experts import TopKProbabilities
from transformer.mixers.attention.head_norms import WideQKNorm
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, experts
from transformer.pretrained.fields import GATED, attention_bias, choice, fixed, kv_heads, norms_eps, same, sizes
from transformer.pretrained.rotary_fields import rope

_EXPERTS = TopKProbabilities(64, top=8, activation=GLU(gate=SiLU()))

OLMOE = Architecture(
    names=("OlmoeForCausalLM",),
    model_type="olmoe",
    base=llama.BASE.replace({"mixer.parts": (WideQKNorm(RMSNorm()),)}, feed_forward=_EXPERTS),
    fields=(
        *sizes(vocab_size=50_304, d_model=2048, d_ff=2048, num_layers=16, num_heads=16, max_length=4096),
        kv_heads(default=None),
        same(("num_experts", "num_local_experts"), "feed_forward.num_experts", default=64),
        same("num_experts_per_tok", "feed_forward.top", default=8),
        norms_eps("rms_norm_eps", WideQKNorm(RMSNorm()), default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        attention_bias("attention_bias", default=False),
        rope(),
        fixed("norm_topk_prob", False),
        fixed("clip_qkv", None),
    ),
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.head_norms("wide_qk_norm"),
        *llama.NORMS,
        *experts(f"{llama.LAYER}.mlp", "gate_proj", "up_proj", "down_proj"),
    ),
)
