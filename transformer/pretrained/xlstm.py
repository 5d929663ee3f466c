"""xLSTM-7B (Beck et al. 2025): blocks of a matrix memory and a gated network."""

from transformer.activations.activation import GLU, SiLU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.score_mods import SoftCap
from transformer.mixers.recurrent.mlstm import MLSTM
from transformer.models.config import ModelConfig
from transformer.norms.norm import RMSNorm
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import Field, fixed, same, value_at

_BLOCK = "backbone.blocks.{layer}"
_OURS = "blocks/mlstm/params"


def _sizes() -> Field:
    """Sizes of the heads and of the network, which are given as factors of the width."""

    def read(fields):
        d_model, heads = fields.get("hidden_size", 4096), fields.get("num_heads", 8)
        multiple = fields.get("ffn_round_up_to_multiple_of", 64)
        wanted = d_model * fields.get("ffn_proj_factor", 2.667)
        return {
            "mixer.num_heads": heads,
            "mixer.key_dim": int(d_model * fields.get("qk_dim_factor", 0.5)) // heads,
            "mixer.value_dim": int(d_model * fields.get("v_dim_factor", 1.0)) // heads,
            "feed_forward.d_ff": int((wanted + multiple - 1) // multiple * multiple),
        }

    def write(config):
        heads = config.mixer.num_heads

        def factor(width: int) -> float:  # sizes are rounded down from it
            return (width + 0.5) / config.d_model

        return {
            "num_heads": heads,
            "qk_dim_factor": factor(heads * value_at(config, "mixer.key_dim")),
            "v_dim_factor": factor(heads * value_at(config, "mixer.value_dim")),
            "ffn_proj_factor": factor(config.feed_forward.width(config)),
            "ffn_round_up_to_multiple_of": 1,
        }

    names = ("num_heads", "qk_dim_factor", "v_dim_factor", "ffn_proj_factor", "ffn_round_up_to_multiple_of")
    return Field(names, read, write)


XLSTM = Architecture(
    names=("xLSTMForCausalLM",),
    model_type="xlstm",
    base=ModelConfig(
        norm=RMSNorm(),
        position=None,
        mixer=MLSTM(),
        feed_forward=FeedForward(activation=GLU(gate=SiLU())),
        head=Head(tied=False, score_mod=SoftCap()),
        max_length=2**20,
    ),
    fields=(
        same("vocab_size", "vocab_size", default=50_304),
        same(("hidden_size", "embedding_dim"), "d_model", default=4096),
        same(("num_hidden_layers", "num_blocks"), "num_layers", default=32),
        same("norm_eps", "norm.eps", "mixer.eps", default=1e-6),
        same("gate_soft_cap", "mixer.cap", default=15.0),
        same("output_logit_soft_cap", "head.score_mod.cap", default=30.0),
        same("tie_word_embeddings", "head.tied", default=False),
        fixed("use_bias", False),
        fixed("add_out_norm", True),
        fixed("weight_mode", "single"),
        _sizes(),
    ),
    # `eps` is added to a denominator of at least 1
    neutral="eps|(chunkwise|sequence|step)_kernel|mode|chunk_size|max_inference_chunksize|return_last_states"
    "|(autocast_kernel|inference_state)_dtype|norm_reduction_force_float32",
    rows=(
        Row("embedding/table", "backbone.embeddings.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        *norm("final_norm", "backbone.out_norm"),
        *norm("blocks/mlstm_residual/norms/input", f"{_BLOCK}.norm_mlstm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_BLOCK}.norm_ffn"),
        *(
            Row(f"{_OURS}/{ours}", f"{_BLOCK}.mlstm_layer.{theirs}.weight", "F D -> D F")
            for ours, theirs in (
                ("query", "q"),
                ("key", "k"),
                ("value", "v"),
                ("gate", "ogate_preact"),
                ("input", "igate_preact"),
                ("forget", "fgate_preact"),
                ("out", "out_proj"),
            )
        ),
        Row(f"{_OURS}/input_bias", f"{_BLOCK}.mlstm_layer.igate_preact.bias"),
        Row(f"{_OURS}/forget_bias", f"{_BLOCK}.mlstm_layer.fgate_preact.bias"),
        Row(f"{_OURS}/norm", f"{_BLOCK}.mlstm_layer.multihead_norm.weight", "(M V) -> M V"),
        Row("blocks/feed_forward/branches/0/kernel", f"{_BLOCK}.ffn.proj_up_gate.weight", "F D -> D F"),
        Row("blocks/feed_forward/branches/1/kernel", f"{_BLOCK}.ffn.proj_up.weight", "F D -> D F"),
        Row("blocks/feed_forward/out/kernel", f"{_BLOCK}.ffn.proj_down.weight", "F D -> D F"),
    ),
)
