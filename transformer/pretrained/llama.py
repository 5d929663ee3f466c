"""Llama (Touvron et al. 2023), and other models with the same names of tensors."""

from collections.abc import Iterator

from transformer.activations.activation import GLU, SiLU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import GATED, attention_bias, choice, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope

BASE = ModelConfig(
    norm=RMSNorm(), position=RoPE(), feed_forward=FeedForward(activation=GLU(gate=SiLU())), head=Head(tied=False)
)

SIZES = sizes(vocab_size=32_000, d_model=4096, d_ff=11_008, num_layers=32, num_heads=32, max_length=2048)
FIELDS = (
    *SIZES,
    kv_heads(default=None),
    same("head_dim", "mixer.head_dim", default=None),
    same("rms_norm_eps", "norm.eps", default=1e-6),
    same("tie_word_embeddings", "head.tied", default=False),
    same("mlp_bias", "feed_forward.bias", default=False),
    attention_bias("attention_bias", default=False),
    choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
    rope(),
)

LAYER = "model.layers.{layer}"
EMBEDDINGS = (
    Row("embedding/table", "model.embed_tokens.weight", also=("lm_head.weight",)),
    Row("output/table", "lm_head.weight"),
    *norm("final_norm", "model.norm"),
)
OUT = tuple(dense("blocks/attention/out", f"{LAYER}.self_attn.o_proj"))
ATTENTION = (
    *dense("blocks/attention/query", f"{LAYER}.self_attn.q_proj"),
    *dense("blocks/attention/key", f"{LAYER}.self_attn.k_proj"),
    *dense("blocks/attention/value", f"{LAYER}.self_attn.v_proj"),
    *OUT,
)
BRANCHES = ("blocks/feed_forward/branches/0", "blocks/feed_forward/branches/1")
DOWN = tuple(dense("blocks/feed_forward/out", f"{LAYER}.mlp.down_proj"))
FEED_FORWARD = (
    *dense(BRANCHES[0], f"{LAYER}.mlp.gate_proj"),
    *dense(BRANCHES[1], f"{LAYER}.mlp.up_proj"),
    *DOWN,
)
NORMS = (
    *norm("blocks/attention_residual/norms/input", f"{LAYER}.input_layernorm"),
    *norm("blocks/feed_forward_residual/norms/input", f"{LAYER}.post_attention_layernorm"),
)


def head_norms(ours: str, *, theirs: tuple[str, str] = ("q_norm", "k_norm")) -> Iterator[Row]:
    """Norms of queries and of keys, of the part of attention with this name."""
    for role, name in zip(("query", "key"), theirs, strict=True):
        yield Row(f"blocks/attention/parts/{ours}/{role}_scale", f"{LAYER}.self_attn.{name}.weight")
        yield Row(f"blocks/attention/parts/{ours}/{role}_bias", f"{LAYER}.self_attn.{name}.bias")


LLAMA = Architecture(
    names=("LlamaForCausalLM",),
    model_type="llama",
    base=BASE,
    fields=FIELDS,
    rows=(*EMBEDDINGS, *ATTENTION, *FEED_FORWARD, *NORMS),
    ignored=r".*rotary_emb\.inv_freq",
)
