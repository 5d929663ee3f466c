"""Gemma 3 (2025), its models of text."""

from transformer.mixers.attention.head_norms import QKNorm
from transformer.norms.norm import RMSNorm
from transformer.pretrained import gemma2, llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import (
    GATED,
    Field,
    Json,
    attention_bias,
    by_layer,
    choice,
    fixed,
    kv_heads,
    norms_eps,
    same,
    sizes,
)
from transformer.pretrained.rotary_fields import rope_values
from transformer.pretrained.windows import KINDS, read_ropes, read_windows, write_ropes, write_windows

NUM_LAYERS, WINDOW = 26, 4096
"""Of a model whose file does not say."""
_NORM = QKNorm(RMSNorm(zero_centered=True))


def _windows_and_positions() -> Field:
    """The layers with a window, five of six, and the rotary positions of both kinds of layers."""

    def usual(fields: Json) -> list[bool]:
        turn = fields.get("sliding_window_pattern", 6)
        return [(i + 1) % turn != 0 for i in range(fields.get("num_hidden_layers", NUM_LAYERS))]

    def read(fields):
        kinds = rope_values(fields, lambda scaling: {KINDS[0]: scaling})
        bases = {"whole": fields.get("rope_theta", 1e6), "local": fields.get("rope_local_base_freq", 1e4)}
        windows = read_windows(fields, usual, WINDOW)
        positions = read_ropes(kinds, windows, **bases)
        return {"position": positions[0]} | by_layer({"mixer.sparsity": windows, "position": positions})

    def write(config):
        written = write_windows(config, WINDOW)
        return written | write_ropes(config, written["layer_types"])

    names = ("sliding_window", "layer_types", "sliding_window_pattern", "rope_parameters", "rope_scaling")
    return Field((*names, "rope_theta", "rope_local_base_freq"), read, write)


GEMMA3 = Architecture(
    names=("Gemma3ForCausalLM",),
    model_type="gemma3_text",
    base=gemma2.BASE.replace({"mixer.parts": (_NORM,)}),
    fields=(
        *sizes(vocab_size=262_208, d_model=2304, d_ff=9216, num_layers=NUM_LAYERS, num_heads=8, max_length=131_072),
        kv_heads(default=4),
        same("head_dim", "mixer.head_dim", default=256),
        norms_eps("rms_norm_eps", _NORM, default=1e-6),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("hidden_activation", "feed_forward.activation", GATED, default="gelu_pytorch_tanh"),
        gemma2.cap("attn_logit_softcapping", "mixer.score_mod", None),
        gemma2.cap("final_logit_softcapping", "head.score_mod", None),
        gemma2.scale(),
        _windows_and_positions(),
        attention_bias("attention_bias", default=False),
        fixed("use_bidirectional_attention", False),
    ),
    neutral="_sliding_window_pattern",
    rows=(*gemma2.GEMMA2.rows, *llama.head_norms("qk_norm")),
)
