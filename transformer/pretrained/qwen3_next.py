"""Qwen3-Next (2025): three layers of Gated DeltaNet, then one of gated attention. Dense layers only."""

from transformer.core.values import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.head_norms import QKNorm
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import GATED, Field, Json, choice, first, fixed, mixers, rope, same

_LAYER = "model.layers.{layer}"
_OURS = "blocks/gated_deltanet/params"
KINDS = ("linear_attention", "full_attention")


def recurrent_fields(layers: list[GatedDeltaNet | Attention]) -> dict[str, object]:
    """The fields of the recurrent layers, and which they are."""
    recurrent = first(GatedDeltaNet, layers)
    return {
        "linear_num_key_heads": recurrent.key_heads,
        "linear_num_value_heads": recurrent.num_heads,
        "linear_key_head_dim": recurrent.key_dim,
        "linear_value_head_dim": recurrent.value_dim,
        "linear_conv_kernel_dim": recurrent.convolution,
        "layer_types": [KINDS[isinstance(mixer, Attention)] for mixer in layers],
    }


def _mixers() -> Field:
    def read(fields: Json) -> list[GatedDeltaNet | Attention]:
        eps = float(fields.get("rms_norm_eps", 1e-6))
        recurrent = GatedDeltaNet(
            num_heads=fields.get("linear_num_value_heads", 32),
            num_key_heads=fields.get("linear_num_key_heads", 16),
            key_dim=fields.get("linear_key_head_dim", 128),
            value_dim=fields.get("linear_value_head_dim", 128),
            convolution=fields.get("linear_conv_kernel_dim", 4),
            eps=eps,
        )
        attention = Attention(
            num_heads=fields.get("num_attention_heads", 16),
            num_kv_heads=fields.get("num_key_value_heads", 2),
            head_dim=fields.get("head_dim", 256),
            parts=(QKNorm(RMSNorm(eps=eps, zero_centered=True)), OutputGate()),
        )
        types = fields.get("layer_types") or [
            KINDS[(i + 1) % fields.get("full_attention_interval", 4) == 0] for i in range(fields["num_hidden_layers"])
        ]
        return [attention if kind == KINDS[1] else recurrent for kind in types]

    def write(layers: list[GatedDeltaNet | Attention]) -> dict[str, object]:
        attention = first(Attention, layers)
        return recurrent_fields(layers) | {
            "num_attention_heads": attention.num_heads,
            "num_key_value_heads": attention.num_kv_heads,
            "head_dim": attention.head_dim,
        }

    own = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    more = ("num_attention_heads", "num_key_value_heads", "head_dim", "layer_types", "full_attention_interval")
    return mixers(*(f"linear_{name}" for name in own), *more, read=read, write=write)


def _dense_layers() -> Field:
    """The layers without experts, which have to be all of them."""
    names = ("mlp_only_layers", "num_experts")

    def read(fields):
        layers = fields.get("num_hidden_layers", 48)
        if fields.get("num_experts", 512) and set(fields.get("mlp_only_layers") or ()) != set(range(layers)):
            raise ConfigError("num_experts: a gated shared expert is not supported, only dense layers (num_experts 0)")
        return {}

    return Field(names, read, lambda config: {"num_experts": 0, "mlp_only_layers": list(range(config.num_layers))})


QWEN3_NEXT = Architecture(
    names=("Qwen3NextForCausalLM",),
    model_type="qwen3_next",
    base=llama.BASE.replace(norm=RMSNorm(zero_centered=True)),
    fields=(
        same("vocab_size", "vocab_size", default=151_936),
        same("hidden_size", "d_model", default=2048),
        same("intermediate_size", "feed_forward.d_ff", default=5632),
        same("num_hidden_layers", "num_layers", default=48),
        same("max_position_embeddings", "max_length", default=32_768),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        fixed("attention_bias", False),
        _mixers(),
        _dense_layers(),
        rope(fraction=0.25),
    ),
    neutral="(shared_expert|moe)_intermediate_size|num_experts_per_tok|norm_topk_prob|decoder_sparse_step",
    rows=(
        *llama.EMBEDDINGS,
        Row(
            ("blocks/attention/query/kernel", "blocks/attention/parts/output_gate/kernel"),
            f"{_LAYER}.self_attn.q_proj.weight",
            "(H [F]) D -> D (H F)",
        ),
        *llama.ATTENTION[2:],
        Row("blocks/attention/parts/qk_norm/query_scale", f"{_LAYER}.self_attn.q_norm.weight"),
        Row("blocks/attention/parts/qk_norm/key_scale", f"{_LAYER}.self_attn.k_norm.weight"),
        Row(
            tuple(f"{_OURS}/{name}" for name in ("query", "key", "value", "gate")),
            f"{_LAYER}.linear_attn.in_proj_qkvz.weight",
            "(M [F]) D -> D (M F)",
        ),
        Row((f"{_OURS}/rate", f"{_OURS}/forget"), f"{_LAYER}.linear_attn.in_proj_ba.weight", "(M [F]) D -> D (M F)"),
        Row(
            tuple(f"{_OURS}/{name}_taps" for name in ("query", "key", "value")),
            f"{_LAYER}.linear_attn.conv1d.weight",
            "[X] 1 ~W -> W X",
        ),
        Row(f"{_OURS}/forget_bias", f"{_LAYER}.linear_attn.dt_bias"),
        Row(f"{_OURS}/forget_rate", f"{_LAYER}.linear_attn.A_log"),
        Row(f"{_OURS}/norm", f"{_LAYER}.linear_attn.norm.weight"),
        Row(f"{_OURS}/out", f"{_LAYER}.linear_attn.out_proj.weight", "F D -> D F"),
        *llama.FEED_FORWARD,
        *llama.NORMS,
        *norm("blocks/gated_deltanet_residual/norms/input", f"{_LAYER}.input_layernorm"),
    ),
)
