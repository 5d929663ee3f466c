"""Falcon (Almazrouei et al. 2023)."""

from transformer.activations.activation import GELU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.blocks import Parallel, ParallelNorms, Sequential
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.pretrained.architecture import QKV, Architecture, Row, dense, joined, norm
from transformer.pretrained.fields import ACTIVATIONS, Field, all_biases, choice, fixed, same, value_at
from transformer.pretrained.rotary_fields import rope

_LAYER = "transformer.h.{layer}"


def _block() -> Field:
    """The key-value heads and the order of sublayers, of which there is an older form and a newer one."""

    def read(fields):
        heads = fields.get("num_attention_heads", 71)
        if fields.get("new_decoder_architecture", False):
            two = fields.get("num_ln_in_parallel_attn") in (None, 2)
            return {
                "mixer.num_kv_heads": fields.get("num_kv_heads") or heads,
                "block": ParallelNorms() if two else Parallel(),
            }
        return {
            "mixer.num_kv_heads": 1 if fields.get("multi_query", True) else heads,
            "block": Parallel() if fields.get("parallel_attn", True) else Sequential(),
        }

    def write(config):
        kv_heads, block = value_at(config, "mixer.num_kv_heads"), config.block
        return {
            "num_kv_heads": kv_heads,
            "multi_query": kv_heads == 1,
            "new_decoder_architecture": block == ParallelNorms() or kv_heads not in (1, config.mixer.num_heads),
            "num_ln_in_parallel_attn": 2 if block == ParallelNorms() else 1,
            "parallel_attn": block != Sequential(),
        }

    names = ("num_kv_heads", "multi_query", "new_decoder_architecture", "num_ln_in_parallel_attn", "parallel_attn")
    return Field(names, read, write)


FALCON = Architecture(
    names=("FalconForCausalLM",),
    model_type="falcon",
    base=ModelConfig(norm=LayerNorm(), feed_forward=FeedForward(activation=GELU())),
    fields=(
        same("vocab_size", "vocab_size", default=65_024),
        same("hidden_size", "d_model", default=4544),
        same("ffn_hidden_size", "feed_forward.d_ff", default=None),
        same("num_hidden_layers", "num_layers", default=32),
        same("num_attention_heads", "mixer.num_heads", default=71),
        same("max_position_embeddings", "max_length", default=2048),
        same("layer_norm_epsilon", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("activation", "feed_forward.activation", ACTIVATIONS, default="gelu"),
        all_biases("bias", default=False),
        _block(),
        rope(),
        fixed("alibi", False),  # its slopes are rounded to bfloat16
        fixed("apply_residual_connection_post_layernorm", False),
    ),
    rows=(
        Row("embedding/table", "transformer.word_embeddings.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        *norm("final_norm", "transformer.ln_f"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.input_layernorm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.post_attention_layernorm"),
        *norm("blocks/attention_residual/norms/attention", f"{_LAYER}.ln_attn"),
        *norm("blocks/attention_residual/norms/feed_forward", f"{_LAYER}.ln_mlp"),
        *joined(QKV, f"{_LAYER}.self_attention.query_key_value", "(G [n] K)"),
        *dense("blocks/attention/out", f"{_LAYER}.self_attention.dense"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.mlp.dense_h_to_4h"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.dense_4h_to_h"),
    ),
)
