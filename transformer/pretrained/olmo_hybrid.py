"""OLMo Hybrid (2026): three layers of Gated DeltaNet that normalize their input, then one of attention, its output."""

from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.head_norms import WideQKNorm
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.models.pattern import Alternate
from transformer.norms.norm import RMSNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import GATED, Field, Json, choice, first, fixed, mixers, one_turn, same
from transformer.pretrained.recurrent import DELTA_FIELDS, attending, convolved, delta_fields, delta_rows, delta_rule
from transformer.pretrained.rotary_fields import rope
from transformer.residuals.residual import BranchNorm, PreNorm

NUM_LAYERS = 32
"""Layers of a model whose file does not count them."""
_LAYER = "model.layers.{layer}"
_OURS = "blocks/gated_deltanet/params"


def _sized(fields: Json) -> Json:
    """The fields with the sizes of recurrent heads, which follow from the width where a file does not say them."""
    given = {name: value for name, value in fields.items() if value is not None}
    heads = given.get("num_attention_heads", 30)
    key_heads = given.get("linear_num_key_heads", heads)
    key_dim = given.get("linear_key_head_dim", int(0.75 * given.get("hidden_size", 3840) / key_heads))
    sizes = {"linear_num_key_heads": heads, "linear_num_value_heads": heads}
    return sizes | {"linear_key_head_dim": key_dim, "linear_value_head_dim": 2 * key_dim} | given


def _mixers() -> Field:
    def read(fields: Json) -> list[Mixer]:
        negative = fields.get("linear_allow_neg_eigval", True)
        recurrent = delta_rule(_sized(fields), negative_eigenvalues=negative)
        attention = Attention(
            num_heads=fields.get("num_attention_heads", 30),
            num_kv_heads=fields.get("num_key_value_heads"),
            parts=(WideQKNorm(RMSNorm(eps=float(fields.get("rms_norm_eps", 1e-6)))),),
        )
        return [attention if attends else recurrent for attends in attending(fields, NUM_LAYERS)]

    def write(layers: list[Mixer]) -> dict[str, object]:
        attention = first(Attention, layers)
        return delta_fields(layers) | {
            "linear_allow_neg_eigval": first(GatedDeltaNet, layers).negative_eigenvalues,
            "num_attention_heads": attention.num_heads,
            "num_key_value_heads": attention.num_kv_heads,
        }

    names = (*DELTA_FIELDS, "linear_allow_neg_eigval", "num_attention_heads", "num_key_value_heads")
    field = mixers(*names, read=read, write=write)

    def with_residuals(fields: Json) -> dict[str, object]:
        residuals = one_turn([BranchNorm() if attends else PreNorm() for attends in attending(fields, NUM_LAYERS)])
        return {"pattern": (*field.read(fields)["pattern"], Alternate("residual", residuals))}

    return Field(field.theirs, with_residuals, field.write)


def _position() -> Field:
    """Rotary positions, or none where they or their base are null."""
    rotary = rope()

    def read(fields):
        stored = fields.get("rope_parameters", {})
        absent = stored is None or stored.get("rope_theta", 0) is None
        return {"position": None} if absent else rotary.read(fields)

    def write(config):
        none = {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
        return none if config.position is None else rotary.write(config)

    return Field(rotary.theirs, read, write)


OLMO_HYBRID = Architecture(
    names=("OlmoHybridForCausalLM",),
    model_type="olmo_hybrid",
    base=llama.BASE,
    fields=(
        same("vocab_size", "vocab_size", default=100_352),
        same("hidden_size", "d_model", default=3840),
        same("intermediate_size", "feed_forward.d_ff", default=11_008),
        same("num_hidden_layers", "num_layers", default=NUM_LAYERS),
        same("max_position_embeddings", "max_length", default=65_536),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        fixed("attention_bias", False),
        _mixers(),
        _position(),
    ),
    neutral="linear_(a_log|dt)_.*",
    renames=(("input_layernorm", "attention_layer_norm"), ("post_attention_layernorm", "feedforward_layer_norm")),
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        Row("blocks/attention/parts/wide_qk_norm/query_scale", f"{_LAYER}.self_attn.q_norm.weight"),
        Row("blocks/attention/parts/wide_qk_norm/key_scale", f"{_LAYER}.self_attn.k_norm.weight"),
        *(
            Row(f"{_OURS}/{ours}", f"{_LAYER}.linear_attn.{letter}_proj.weight", "F D -> D F")
            for ours, letter in zip(("query", "key", "value", "forget", "rate", "gate", "out"), "qkvabgo", strict=True)
        ),
        *(convolved(_OURS, (role,), f"{_LAYER}.linear_attn.{role[0]}_conv1d") for role in ("query", "key", "value")),
        *delta_rows(f"{_LAYER}.linear_attn"),
        Row(f"{_OURS}/norm", f"{_LAYER}.linear_attn.o_norm.weight"),
        *llama.FEED_FORWARD,
        *norm("blocks/gated_deltanet_residual/norms/input", f"{_LAYER}.attention_layer_norm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.feedforward_layer_norm"),
        *norm("blocks/attention_residual/norms/branch", f"{_LAYER}.feedforward_layer_norm"),
        *norm("blocks/feed_forward_residual/norms/branch", f"{_LAYER}.post_feedforward_layernorm"),
    ),
)
