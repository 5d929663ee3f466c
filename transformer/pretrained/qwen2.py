"""Qwen 2 and 2.5 (2024)."""

from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import GATED, Field, Json, by_layer, choice, fixed, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import read_windows, write_windows

NUM_LAYERS = 32
"""Layers of a model whose file does not count them."""
SIZES = sizes(vocab_size=151_936, d_model=4096, d_ff=22_016, num_layers=NUM_LAYERS, num_heads=32, max_length=32_768)
WINDOW = 4096
"""Tokens in a window whose file does not say."""


def upper_windows() -> Field:
    """Windows in the layers from some number on, where they are used at all."""

    def usual(fields: Json) -> list[bool]:
        return [i >= fields.get("max_window_layers", 28) for i in range(fields.get("num_hidden_layers", NUM_LAYERS))]

    def read(fields):
        used = fields.get("use_sliding_window", False) and fields.get("sliding_window", WINDOW) is not None
        return by_layer({"mixer.sparsity": read_windows(fields, usual, WINDOW) if used else [None]})

    def write(config):
        written = write_windows(config, WINDOW)
        return written | {"use_sliding_window": "sliding_attention" in written["layer_types"]}

    return Field(("use_sliding_window", "sliding_window", "max_window_layers", "layer_types"), read, write)


QWEN2 = Architecture(
    names=("Qwen2ForCausalLM",),
    model_type="qwen2",
    base=llama.BASE.replace({"mixer.bias": ("query", "key", "value")}),
    fields=(
        *SIZES,
        kv_heads(default=32),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        upper_windows(),
        rope(),
        fixed("use_mrope", False),
    ),
    rows=llama.LLAMA.rows,
)
