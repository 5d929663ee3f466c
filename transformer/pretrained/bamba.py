"""Bamba (2024): layers of Mamba-2, and some of attention."""

from transformer.core.errors import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, dense, norm
from transformer.pretrained.fields import BIASES, Field, Json, first, fixed, layer_values, mixers, same
from transformer.pretrained.recurrent import KINDS, expand, mamba2_rows, of_attention, step_limits
from transformer.pretrained.rotary_fields import rope

NUM_LAYERS = 32
"""Layers of a model whose file does not count them."""
_LAYER = "model.layers.{layer}"


def _mixers() -> Field:
    def read(fields: Json) -> list[Mamba2 | Attention]:
        d_model, heads = fields.get("hidden_size", 4096), fields.get("mamba_n_heads", 128)
        if fields.get("mamba_n_groups", 1) != 1:
            raise ConfigError(f"mamba_n_groups: {fields['mamba_n_groups']} is not supported, only 1")
        recurrent = Mamba2(
            num_heads=heads,
            num_key_heads=1,
            key_dim=fields.get("mamba_d_state", 256),
            value_dim=fields.get("mamba_expand", 2) * d_model // heads,
            convolution=fields.get("mamba_d_conv", 4),
            convolution_bias=fields.get("mamba_conv_bias", True),
            eps=float(fields.get("rms_norm_eps", 1e-5)),
        )
        attention = Attention(
            num_heads=fields.get("num_attention_heads", 32),
            num_kv_heads=fields.get("num_key_value_heads", 8),
            bias=BIASES if fields.get("attention_bias", False) else (),
        )
        attending = fields.get("attn_layer_indices") or ()
        types = layer_values("layer_types", fields) or layer_values("layers_block_type", fields)
        kinds = types or [KINDS[i in attending] for i in range(fields.get("num_hidden_layers", NUM_LAYERS))]
        return [attention if attends else recurrent for attends in of_attention(kinds)]

    def write(layers: list[Mamba2 | Attention]) -> dict[str, object]:
        recurrent = first(Mamba2, layers)
        attending = [i for i, mixer in enumerate(layers) if isinstance(mixer, Attention)]
        attention = [mixer for mixer in layers if isinstance(mixer, Attention)]
        return {
            "mamba_n_heads": recurrent.num_heads,
            "mamba_n_groups": recurrent.key_heads,
            "mamba_d_head": recurrent.value_dim,
            "mamba_d_state": recurrent.key_dim,
            "mamba_d_conv": recurrent.convolution,
            "mamba_conv_bias": recurrent.convolution_bias,
            "attn_layer_indices": attending,
            **({"num_attention_heads": attention[0].num_heads} if attention else {}),
            **({"num_key_value_heads": attention[0].num_kv_heads} if attention else {}),
            "attention_bias": bool(attention and attention[0].bias),
        }

    own = ("n_heads", "n_groups", "d_head", "d_state", "d_conv", "conv_bias")
    attention = ("num_attention_heads", "num_key_value_heads", "attention_bias", "attn_layer_indices")
    names = (*(f"mamba_{name}" for name in own), *attention, "layer_types", "layers_block_type")
    return mixers(*names, read=read, write=write)


BAMBA = Architecture(
    names=("BambaForCausalLM",),
    model_type="bamba",
    base=llama.BASE,
    fields=(
        same("vocab_size", "vocab_size", default=128_000),
        same("hidden_size", "d_model", default=4096),
        same("intermediate_size", "feed_forward.d_ff", default=14_336),
        same("num_hidden_layers", "num_layers", default=NUM_LAYERS),
        same("max_position_embeddings", "max_length", default=262_144),
        same("rms_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        same("mlp_bias", "feed_forward.bias", default=False),
        fixed("hidden_act", "silu"),
        fixed("mamba_proj_bias", False),
        _mixers(),
        expand("mamba_expand"),
        step_limits(),
        rope(fraction=0.5),
    ),
    neutral="mamba_chunk_size|num_logits_to_keep|z_loss_coefficient",
    rows=(
        *llama.EMBEDDINGS[:2],
        *norm("final_norm", "model.final_layernorm"),
        *llama.ATTENTION,
        *mamba2_rows(f"{_LAYER}.mamba"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.feed_forward.gate_proj"),
        *dense("blocks/feed_forward/branches/1", f"{_LAYER}.feed_forward.up_proj"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.feed_forward.down_proj"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.input_layernorm"),
        *norm("blocks/mamba2_residual/norms/input", f"{_LAYER}.input_layernorm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.pre_ff_layernorm"),
    ),
)
