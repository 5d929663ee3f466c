"""Gemma 2 (2024)."""

from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.attention.score_mods import SoftCap
from transformer.pretrained import gemma, llama
from transformer.pretrained.architecture import Architecture, norm
from transformer.pretrained.fields import GATED, Field, attention_bias, choice, fixed, kv_heads, same, sizes, value_at
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import windows
from transformer.residuals.residual import SandwichNorm

BASE = gemma.BASE.replace(residual=SandwichNorm())


def cap(theirs: str, ours: str, default: float | None) -> Field:
    """A soft cap of scores or logits, or none."""

    def read(fields):
        cap = fields.get(theirs, default)
        return {ours: None if cap is None else SoftCap(float(cap))}

    return Field((theirs,), read, lambda config: {theirs: getattr(value_at(config, ours), "cap", None)})


def scale() -> Field:
    """The factor on scores."""

    def read(fields):
        return {"mixer.scale": ConstantScale(fields.get("query_pre_attn_scalar", 256) ** -0.5)}

    return Field(("query_pre_attn_scalar",), read, lambda c: {"query_pre_attn_scalar": round(c.mixer.scale.value**-2)})


NORMS = (
    *norm("blocks/attention_residual/norms/input", f"{llama.LAYER}.input_layernorm"),
    *norm("blocks/attention_residual/norms/branch", f"{llama.LAYER}.post_attention_layernorm"),
    *norm("blocks/feed_forward_residual/norms/input", f"{llama.LAYER}.pre_feedforward_layernorm"),
    *norm("blocks/feed_forward_residual/norms/branch", f"{llama.LAYER}.post_feedforward_layernorm"),
)

GEMMA2 = Architecture(
    names=("Gemma2ForCausalLM",),
    model_type="gemma2",
    base=BASE,
    fields=(
        *sizes(vocab_size=256_000, d_model=2304, d_ff=9216, num_layers=26, num_heads=8, max_length=8192),
        kv_heads(default=4),
        same("head_dim", "mixer.head_dim", default=256),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("hidden_activation", "feed_forward.activation", GATED, default="gelu_pytorch_tanh"),
        cap("attn_logit_softcapping", "mixer.score_mod", 50.0),
        cap("final_logit_softcapping", "head.score_mod", 30.0),
        scale(),
        windows(usual=lambda fields: [i % 2 == 0 for i in range(fields.get("num_hidden_layers", 26))], size=4096),
        attention_bias("attention_bias", default=False),
        rope(),
        fixed("use_bidirectional_attention", None),
    ),
    neutral="hidden_act|sliding_window_size",
    rows=(*llama.EMBEDDINGS, *llama.ATTENTION, *llama.FEED_FORWARD, *NORMS),
)
