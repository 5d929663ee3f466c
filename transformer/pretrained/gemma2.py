"""Gemma 2 (2024)."""

from transformer.activations.activation import GELU, GLU
from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.attention.score_mods import SoftCap
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.pattern import Alternate
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, norm
from transformer.pretrained.fields import GATED, Field, attention_bias, choice, fixed, one_turn, rope, same, value_at
from transformer.residuals.residual import SandwichNorm


def _cap(theirs: str, ours: str, default: float) -> Field:
    """A soft cap of scores or logits, or none."""

    def read(fields):
        cap = fields.get(theirs, default)
        return {ours: None if cap is None else SoftCap(float(cap))}

    return Field((theirs,), read, lambda config: {theirs: getattr(value_at(config, ours), "cap", None)})


def _scale() -> Field:
    def read(fields):
        return {"mixer.scale": ConstantScale(fields.get("query_pre_attn_scalar", 256) ** -0.5)}

    return Field(("query_pre_attn_scalar",), read, lambda c: {"query_pre_attn_scalar": round(c.mixer.scale.value**-2)})


def _windows() -> Field:
    """The layers with a sliding window: as the file lists them, or else every second one from the first."""
    kinds = ("sliding_attention", "full_attention")

    def read(fields):
        window = SlidingWindow(fields.get("sliding_window", 4096))
        types = fields.get("layer_types") or kinds
        turns = tuple(window if kind == kinds[0] else None for kind in one_turn(types))
        return {"pattern": (Alternate("mixer.sparsity", turns),)}

    def write(config):
        windows = [config.layer_config(layer).mixer.sparsity for layer in range(config.num_layers)]
        sizes = [window.size for window in windows if isinstance(window, SlidingWindow)]
        types = [kinds[0] if isinstance(window, SlidingWindow) else kinds[1] for window in windows]
        return {"sliding_window": max(sizes, default=4096), "layer_types": types}

    return Field(("sliding_window", "layer_types"), read, write)


_LAYER = "model.layers.{layer}"

GEMMA2 = Architecture(
    names=("Gemma2ForCausalLM",),
    model_type="gemma2",
    base=llama.BASE.replace(
        {"embedding.scaled": True, "feed_forward.activation": GLU(gate=GELU(tanh=True))},
        norm=RMSNorm(zero_centered=True),
        residual=SandwichNorm(),
    ),
    fields=(
        same("vocab_size", "vocab_size", default=256_000),
        same("hidden_size", "d_model", default=2304),
        same("intermediate_size", "feed_forward.d_ff", default=9216),
        same("num_hidden_layers", "num_layers", default=26),
        same("num_attention_heads", "mixer.num_heads", default=8),
        same("num_key_value_heads", "mixer.num_kv_heads", default=4),
        same("head_dim", "mixer.head_dim", default=256),
        same("max_position_embeddings", "max_length", default=8192),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("hidden_activation", "feed_forward.activation", GATED, default="gelu_pytorch_tanh"),
        _cap("attn_logit_softcapping", "mixer.score_mod", 50.0),
        _cap("final_logit_softcapping", "head.score_mod", 30.0),
        _scale(),
        _windows(),
        attention_bias("attention_bias", default=False),
        rope(),
        fixed("use_bidirectional_attention", None),
    ),
    neutral="hidden_act|sliding_window_size",
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.FEED_FORWARD,
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.input_layernorm"),
        *norm("blocks/attention_residual/norms/branch", f"{_LAYER}.post_attention_layernorm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.pre_feedforward_layernorm"),
        *norm("blocks/feed_forward_residual/norms/branch", f"{_LAYER}.post_feedforward_layernorm"),
    ),
)
