"""DeepSeek-V3 (2024) and models of its class, such as Moonlight (2025), without the layers that predict further tokens.
Files of numbers of 8 bits are refused, as all that are quantized."""

import math
from collections.abc import Iterator

from transformer.activations.activation import GLU, SiLU
from transformer.core.errors import ConfigError, nearest
from transformer.feed_forwards.experts import SigmoidTopK
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.heads import LatentQueryHeads
from transformer.mixers.attention.projections import ConstantScale
from transformer.models.config import ModelConfig
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row, dense, experts
from transformer.pretrained.fields import GATED, Field, Json, alike, by_layer, fixed, of_layers, same
from transformer.pretrained.rotary_fields import mscale, rope, rope_values

NUM_LAYERS, DENSE = 61, 3
"""Layers, and those of them without experts, of a model whose file does not say."""
SHARED = (1, 2)
"""Numbers of shared experts, whose networks are stored as one."""
_NETWORK, _MIXER = "blocks/feed_forward", "blocks/attention/params/heads"
_QUERY = "blocks/attention/query/kernel"
_ATTENTION, _MLP = f"{llama.LAYER}.self_attn", f"{llama.LAYER}.mlp"
_EXPERTS = SigmoidTopK(256, top=8, shared=1, factor=2.5, num_groups=8, top_groups=4, activation=GLU(gate=SiLU()))


def _networks() -> Field:
    """The first layers, which have a wider network of their own, and the others, which have experts."""
    ours = {
        "moe_intermediate_size": ("d_ff", 2048),
        "n_routed_experts": ("num_experts", 256),
        "num_experts_per_tok": ("top", 8),
        "n_shared_experts": ("shared", 1),
        "n_group": ("num_groups", 8),
        "topk_group": ("top_groups", 4),
        "routed_scaling_factor": ("factor", 2.5),
    }

    def read(fields: Json):
        act = fields.get("hidden_act", "silu")
        if act not in GATED:
            raise ConfigError(f"hidden_act: no {act!r}{nearest(act, GATED)}")
        said = {name: fields.get(theirs, default) for theirs, (name, default) in ours.items()}
        if said["shared"] not in SHARED:
            raise ConfigError(f"n_shared_experts: {said['shared']} are not supported, only 1 or 2")
        said["factor"] = float(said["factor"])
        routed = SigmoidTopK(**said, activation=GATED[act])
        alone = FeedForward(d_ff=fields.get("intermediate_size", 18_432), activation=GATED[act])
        first, layers = fields.get("first_k_dense_replace", DENSE), fields.get("num_hidden_layers", NUM_LAYERS)
        if first >= layers:
            raise ConfigError(f"first_k_dense_replace: {first} of {layers} layers leave none with experts")
        networks = [alone if layer < first else routed for layer in range(layers)]
        return {"feed_forward": routed} | by_layer({"feed_forward": networks})

    def write(config):
        networks, routed = of_layers(config, "feed_forward"), config.feed_forward
        first = next((i for i, network in enumerate(networks) if network == routed), len(networks))
        alone = {"intermediate_size": networks[0].d_ff} if first else {}
        word = next((word for word, value in GATED.items() if value == routed.activation), str(routed.activation))
        counts = {theirs: getattr(routed, name) for theirs, (name, _) in ours.items()}
        return {"first_k_dense_replace": first, "hidden_act": word, **alone, **counts}

    names = ("first_k_dense_replace", "intermediate_size", "hidden_act", "num_hidden_layers")
    return Field((*names, *ours), read, write)


def _positions_and_scale() -> Field:
    """Rotary positions, and the factor on scores, which grows where YaRN says so for all features."""
    rotary = rope(interleaved=True)
    sizes = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}

    def read(fields):
        values = rope_values(fields) or {}
        size, share = sum(fields.get(name, default) for name, default in sizes.items()), values.get("mscale_all_dim")
        scale = ConstantScale(mscale(values["factor"], share) ** 2 * size**-0.5) if share else None
        return {**rotary.read(fields), "mixer.scale": scale}

    def write(config):
        written, scale = rotary.write(config), config.mixer.scale
        values = written["rope_parameters"]
        if scale is None or values.get("factor", 1.0) == 1.0:
            return written
        growth = math.sqrt(scale.value * math.sqrt(config.mixer.head_dim + config.mixer.heads.rotary))
        share = (growth - 1) / (mscale(values["factor"], 1.0) - 1)
        return {"rope_parameters": values | {"mscale_all_dim": round(share, 6)}}

    return Field((*rotary.theirs, *sizes), read, write)


def _shared() -> Iterator[Row]:
    """The shared experts, side by side in one network."""
    for count in SHARED:
        networks = [f"{_NETWORK}/shared/{i}" for i in range(count)]
        for theirs, name in {"gate_proj": "branches/0", "up_proj": "branches/1", "down_proj": "out"}.items():
            yield Row(
                tuple(f"{network}/{name}/kernel" for network in networks),
                f"{_MLP}.shared_experts.{theirs}.weight",
                "D [F] -> F D" if name == "out" else "[F] D -> D F",
                when=lambda config, count=count: getattr(config.feed_forward, "shared", 0) == count,
            )


def _ranked(config: ModelConfig) -> bool:
    """Whether queries come from a small vector."""
    return getattr(getattr(config.mixer, "heads", None), "query_rank", None) is not None


DEEPSEEK_V3 = Architecture(
    names=("DeepseekV3ForCausalLM",),
    model_type="deepseek_v3",
    base=llama.BASE.replace({"mixer.heads": LatentQueryHeads()}, feed_forward=_EXPERTS),
    fields=(
        same("vocab_size", "vocab_size", default=129_280),
        same("hidden_size", "d_model", default=7168),
        same("num_hidden_layers", "num_layers", default=NUM_LAYERS),
        same("max_position_embeddings", "max_length", default=4096),
        alike(("num_attention_heads", "num_key_value_heads"), "mixer.num_heads", default=128),
        alike(("qk_nope_head_dim", "v_head_dim"), "mixer.head_dim", default=128),
        same("qk_rope_head_dim", "mixer.heads.rotary", default=64),
        same("kv_lora_rank", "mixer.heads.rank", default=512),
        Field(
            ("q_lora_rank",),
            lambda fields: {"mixer.heads.query_rank": fields.get("q_lora_rank", 1536)},
            lambda config: {"q_lora_rank": config.mixer.heads.query_rank},
        ),
        same("rms_norm_eps", "norm.eps", default=1e-6),
        same("tie_word_embeddings", "head.tied", default=False),
        _networks(),
        _positions_and_scale(),
        fixed("attention_bias", False),
        fixed("norm_topk_prob", True),
        fixed("rope_interleave", True),
        fixed("moe_layer_freq", 1),
        fixed("scoring_func", "sigmoid"),
        fixed("topk_method", "noaux_tc"),
    ),
    neutral="(qk_)?head_dim|num_(nextn_predict|mtp)_layers|aux_loss_alpha|seq_aux|ep_size",
    rows=(
        *llama.EMBEDDINGS,
        Row(_QUERY, f"{_ATTENTION}.q_proj.weight", "F D -> D F", when=lambda config: not _ranked(config)),
        Row(_QUERY, f"{_ATTENTION}.q_a_proj.weight", "F D -> D F", when=_ranked),
        Row(f"{_MIXER}/query_norm", f"{_ATTENTION}.q_a_layernorm.weight"),
        Row(f"{_MIXER}/queries", f"{_ATTENTION}.q_b_proj.weight", "F D -> D F"),
        *dense("blocks/attention/key", f"{_ATTENTION}.kv_a_proj_with_mqa"),
        Row(f"{_MIXER}/norm", f"{_ATTENTION}.kv_a_layernorm.weight"),
        Row((f"{_MIXER}/keys", f"{_MIXER}/values"), f"{_ATTENTION}.kv_b_proj.weight", "(H [F]) D -> H D F"),
        *llama.OUT,
        *llama.FEED_FORWARD,
        *experts(_MLP, "gate_proj", "up_proj", "down_proj"),
        Row(f"{_NETWORK}/router_params/bias", f"{_MLP}.gate.e_score_correction_bias"),
        *_shared(),
        *llama.NORMS,
    ),
    ignored=r"model\.layers\.61\..*|.*rotary_emb\.inv_freq",
)
