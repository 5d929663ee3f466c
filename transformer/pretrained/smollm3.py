"""SmolLM 3 (2025)."""

from transformer.core.errors import ConfigError
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import (
    GATED,
    Field,
    attention_bias,
    by_layer,
    choice,
    fixed,
    kv_heads,
    of_layers,
    same,
    sizes,
)
from transformer.pretrained.rotary_fields import rope

NUM_LAYERS = 36
"""Layers of a model whose file does not count them."""


def _positions() -> Field:
    """Rotary positions, but for every fourth layer or those that are listed with 0."""
    rotary = rope(base=2e6)

    def read(fields):
        every, layers = fields.get("no_rope_layer_interval", 4), fields.get("num_hidden_layers", NUM_LAYERS)
        rotated = (fields.get("no_rope_layers") or [(i + 1) % every for i in range(layers)])[:layers]
        if len(rotated) < layers:
            raise ConfigError(f"no_rope_layers: {len(rotated)} values for {layers} layers")
        found = rotary.read(fields)
        return found | by_layer({"position": [found["position"] if turned else None for turned in rotated]})

    def write(config):
        positions = of_layers(config, "position")
        return rotary.write(config) | {"no_rope_layers": [int(position is not None) for position in positions]}

    return Field(("no_rope_layers", "no_rope_layer_interval", *rotary.theirs), read, write)


SMOLLM3 = Architecture(
    names=("SmolLM3ForCausalLM",),
    model_type="smollm3",
    base=llama.BASE,
    fields=(
        *sizes(vocab_size=128_256, d_model=2048, d_ff=11_008, num_layers=NUM_LAYERS, num_heads=16, max_length=32_768),
        kv_heads(default=4),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=True),
        same("mlp_bias", "feed_forward.bias", default=False),
        attention_bias("attention_bias", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        _positions(),
        fixed("use_sliding_window", False),
    ),
    neutral="sliding_window|max_window_layers|layer_types",
    rows=llama.LLAMA.rows,
)
