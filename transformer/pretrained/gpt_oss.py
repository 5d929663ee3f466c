"""gpt-oss (OpenAI 2025): sinks, windows in every second layer, and experts with biases. Files of numbers of 4 bits
(MXFP4) are refused, as all that are quantized."""

from transformer.activations.activation import ClampedSwiGLU
from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.normalizers import Sink
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row, dense
from transformer.pretrained.fields import attention_bias, fixed, kv_heads, same, several_experts, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import windows

_OURS, _THEIRS = "blocks/feed_forward", f"{llama.LAYER}.mlp.experts"
_EXPERTS = TopKExperts(128, top=4, activation=ClampedSwiGLU(), bias=True)
_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}

GPT_OSS = Architecture(
    names=("GptOssForCausalLM",),
    model_type="gpt_oss",
    base=llama.BASE.replace({"mixer.normalizer": Sink()}, feed_forward=_EXPERTS),
    fields=(
        *sizes(vocab_size=201_088, d_model=2880, d_ff=2880, num_layers=36, num_heads=64, max_length=131_072),
        kv_heads(default=8),
        same("head_dim", "mixer.head_dim", default=64),
        same(("num_local_experts", "num_experts"), "feed_forward.num_experts", default=128),
        several_experts("num_experts_per_tok", default=4),
        same("swiglu_alpha", "feed_forward.activation.alpha", default=1.702),
        same("swiglu_limit", "feed_forward.activation.limit", default=7.0),
        same("rms_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        attention_bias("attention_bias", default=True),
        windows(usual=lambda fields: [i % 2 == 0 for i in range(fields.get("num_hidden_layers", 36))], size=128),
        rope(base=150_000.0, scaling=_YARN),
        fixed("hidden_act", "silu"),
    ),
    neutral="experts_per_token|initial_context_length",
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        Row("blocks/attention/params/normalizer/sink", f"{llama.LAYER}.self_attn.sinks"),
        *llama.NORMS,
        *dense(f"{_OURS}/router", f"{llama.LAYER}.mlp.router"),
        # Gates and what they multiply take turns.
        Row((f"{_OURS}/branches/0", f"{_OURS}/branches/1"), f"{_THEIRS}.gate_up_proj", "E D (N [Z]) -> E D (N Z)"),
        Row(
            (f"{_OURS}/branch_biases/0", f"{_OURS}/branch_biases/1"),
            f"{_THEIRS}.gate_up_proj_bias",
            "E (N [Z]) -> E (N Z)",
        ),
        Row(f"{_OURS}/out", f"{_THEIRS}.down_proj", "E F D -> E F D"),
        Row(f"{_OURS}/out_bias", f"{_THEIRS}.down_proj_bias", "E D -> E D"),
    ),
)
