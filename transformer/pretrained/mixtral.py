"""Mixtral (Jiang et al. 2024)."""

from transformer.activations.activation import GLU, SiLU
from transformer.feed_forwards.experts import TopKExperts
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row
from transformer.pretrained.fields import GATED, Field, choice, rope, same


def _window() -> Field:
    """The sliding window: one for all layers, or none."""

    def read(fields):
        size = fields.get("sliding_window")
        return {"mixer.sparsity": None if size is None else SlidingWindow(size)}

    return Field(("sliding_window",), read, lambda c: {"sliding_window": getattr(c.mixer.sparsity, "size", None)})


_EXPERT = "model.layers.{layer}.block_sparse_moe.experts.{expert}"

MIXTRAL = Architecture(
    names=("MixtralForCausalLM",),
    model_type="mixtral",
    base=llama.BASE.replace(feed_forward=TopKExperts(8, top=2, activation=GLU(gate=SiLU()))),
    fields=(
        same("vocab_size", "vocab_size", default=32_000),
        same("hidden_size", "d_model", default=4096),
        same("intermediate_size", "feed_forward.d_ff", default=14_336),
        same("num_hidden_layers", "num_layers", default=32),
        same("num_attention_heads", "mixer.num_heads", default=32),
        same("num_key_value_heads", "mixer.num_kv_heads", default=8),
        same("head_dim", "mixer.head_dim", default=None),
        same("max_position_embeddings", "max_length", default=131_072),
        same("num_local_experts", "feed_forward.num_experts", default=8),
        same("num_experts_per_tok", "feed_forward.top", default=2),
        same("rms_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
        _window(),
        rope(base=1e6),
    ),
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.NORMS,
        Row("blocks/feed_forward/router/kernel", "model.layers.{layer}.block_sparse_moe.gate.weight", "E D -> D E"),
        Row("blocks/feed_forward/branches/0", f"{_EXPERT}.w1.weight", "F D -> D F"),
        Row("blocks/feed_forward/branches/1", f"{_EXPERT}.w3.weight", "F D -> D F"),
        Row("blocks/feed_forward/out", f"{_EXPERT}.w2.weight", "F D -> D F"),
    ),
)
