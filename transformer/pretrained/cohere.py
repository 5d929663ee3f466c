"""Command R (Cohere 2024), and Command R7B, whose layers with a window alone have positions."""

from transformer.models.blocks import Parallel
from transformer.norms.norm import LayerNorm
from transformer.positions.rotary import RoPE
from transformer.pretrained import llama
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
    same,
    sizes,
)
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import read_windows, write_windows

NUM_LAYERS, WINDOW = 40, 4096
"""Of a model whose file does not say."""
_BASE = llama.BASE.replace(norm=LayerNorm(bias=False), block=Parallel(), position=RoPE(interleaved=True))
_FIELDS = (
    *sizes(vocab_size=256_000, d_model=8192, d_ff=22_528, num_layers=NUM_LAYERS, num_heads=64, max_length=8192),
    kv_heads(default=None),
    same("layer_norm_eps", "norm.eps", default=1e-5),
    same("logit_scale", "head.scale", default=0.0625),
    same("tie_word_embeddings", "head.tied", default=True),
    attention_bias("attention_bias", default=False),
    choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
)


def _windows_and_positions() -> Field:
    """The layers with a window, three of four, and with rotary positions, which are the same."""
    rotary = rope(interleaved=True)

    def usual(fields: Json) -> list[bool]:
        turn = fields.get("sliding_window_pattern", 4)
        return [(i + 1) % turn != 0 for i in range(fields.get("num_hidden_layers", NUM_LAYERS))]

    def read(fields):
        found, windows = rotary.read(fields), read_windows(fields, usual, WINDOW)
        positions = [None if window is None else found["position"] for window in windows]
        return found | by_layer({"mixer.sparsity": windows, "position": positions})

    def write(config):
        return write_windows(config, WINDOW) | rotary.write(config)

    return Field(("sliding_window", "layer_types", "sliding_window_pattern", *rotary.theirs), read, write)


_ROWS = (*llama.EMBEDDINGS, *llama.ATTENTION, *llama.FEED_FORWARD, *llama.NORMS[:2])

COHERE = Architecture(
    names=("CohereForCausalLM",),
    model_type="cohere",
    base=_BASE,
    fields=(*_FIELDS, rope(base=5e5, interleaved=True), fixed("use_qk_norm", False)),
    rows=_ROWS,
)
COHERE2 = Architecture(
    names=("Cohere2ForCausalLM",),
    model_type="cohere2",
    base=_BASE,
    fields=(*_FIELDS, _windows_and_positions()),
    neutral="head_dim|_sliding_window_pattern|cache_implementation|order_of_interleaved_layers|position_embedding_type"
    "|rotary_pct|use_(embedding_sharing|gated_activation|parallel_block|parallel_embedding|qk_norm)",
    rows=_ROWS,
)
