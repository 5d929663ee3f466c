"""Qwen3-Next (2025): three layers of Gated DeltaNet, then one of gated attention. Dense layers only."""

from transformer.core.errors import ConfigError
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.head_norms import QKNorm
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import Field, Json, first, fixed, mixers, same
from transformer.pretrained.recurrent import DELTA_FIELDS, attending, convolved, delta_fields, delta_rows, delta_rule
from transformer.pretrained.rotary_fields import rope

NUM_LAYERS = 48
"""Layers of a model whose file does not count them."""
_LAYER = "model.layers.{layer}"
_OURS = "blocks/gated_deltanet/params"


def _mixers() -> Field:
    def read(fields: Json) -> list[GatedDeltaNet | Attention]:
        eps = float(fields.get("rms_norm_eps", 1e-6))
        recurrent = delta_rule(fields, eps=eps)
        attention = Attention(
            num_heads=fields.get("num_attention_heads", 16),
            num_kv_heads=fields.get("num_key_value_heads", 2),
            head_dim=fields.get("head_dim", 256),
            parts=(QKNorm(RMSNorm(eps=eps, zero_centered=True)), OutputGate()),
        )
        return [attention if attends else recurrent for attends in attending(fields, NUM_LAYERS)]

    def write(layers: list[GatedDeltaNet | Attention]) -> dict[str, object]:
        attention = first(Attention, layers)
        return delta_fields(layers) | {
            "num_attention_heads": attention.num_heads,
            "num_key_value_heads": attention.num_kv_heads,
            "head_dim": attention.head_dim,
        }

    return mixers(*DELTA_FIELDS, "num_attention_heads", "num_key_value_heads", "head_dim", read=read, write=write)


def _dense_layers() -> Field:
    """The layers without experts, which have to be all of them."""
    names = ("mlp_only_layers", "num_experts")

    def read(fields):
        layers = fields.get("num_hidden_layers", NUM_LAYERS)
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
        same("num_hidden_layers", "num_layers", default=NUM_LAYERS),
        same("max_position_embeddings", "max_length", default=32_768),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        fixed("hidden_act", "silu"),
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
        convolved(_OURS, ("query", "key", "value"), f"{_LAYER}.linear_attn.conv1d"),
        *delta_rows(f"{_LAYER}.linear_attn"),
        Row(f"{_OURS}/norm", f"{_LAYER}.linear_attn.norm.weight"),
        Row(f"{_OURS}/out", f"{_LAYER}.linear_attn.out_proj.weight", "F D -> D F"),
        *llama.FEED_FORWARD,
        *llama.NORMS,
        *norm("blocks/gated_deltanet_residual/norms/input", f"{_LAYER}.input_layernorm"),
    ),
)
