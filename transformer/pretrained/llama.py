"""Llama (Touvron et al. 2023), and other models with the same names of tensors."""

from transformer.activations.activation import GLU, SiLU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig
from transformer.norms.norm import RMSNorm
from transformer.positions.rotary import RoPE
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import GATED, attention_bias, choice, rope, same

BASE = ModelConfig(
    norm=RMSNorm(), position=RoPE(), feed_forward=FeedForward(activation=GLU(gate=SiLU())), head=Head(tied=False)
)

SIZES = (
    same("vocab_size", "vocab_size", default=32_000),
    same("hidden_size", "d_model", default=4096),
    same("intermediate_size", "feed_forward.d_ff", default=11_008),
    same("num_hidden_layers", "num_layers", default=32),
    same("num_attention_heads", "mixer.num_heads", default=32),
    same("max_position_embeddings", "max_length", default=2048),
)
FIELDS = (
    *SIZES,
    same("num_key_value_heads", "mixer.num_kv_heads", default=None),
    same("head_dim", "mixer.head_dim", default=None),
    same("rms_norm_eps", "norm.eps", default=1e-6),
    same("tie_word_embeddings", "head.tied", default=False),
    same("mlp_bias", "feed_forward.bias", default=False),
    attention_bias("attention_bias", default=False),
    choice("hidden_act", "feed_forward.activation", GATED, default="silu"),
    rope(),
)

EMBEDDINGS = (
    Row("embedding/table", "model.embed_tokens.weight"),
    Row("output/table", "lm_head.weight"),
    *norm("final_norm", "model.norm"),
)
ATTENTION = (
    *dense("blocks/attention/query", "model.layers.{layer}.self_attn.q_proj"),
    *dense("blocks/attention/key", "model.layers.{layer}.self_attn.k_proj"),
    *dense("blocks/attention/value", "model.layers.{layer}.self_attn.v_proj"),
    *dense("blocks/attention/out", "model.layers.{layer}.self_attn.o_proj"),
)
FEED_FORWARD = (
    *dense("blocks/feed_forward/branches/0", "model.layers.{layer}.mlp.gate_proj"),
    *dense("blocks/feed_forward/branches/1", "model.layers.{layer}.mlp.up_proj"),
    *dense("blocks/feed_forward/out", "model.layers.{layer}.mlp.down_proj"),
)
NORMS = (
    *norm("blocks/attention_residual/norms/input", "model.layers.{layer}.input_layernorm"),
    *norm("blocks/feed_forward_residual/norms/input", "model.layers.{layer}.post_attention_layernorm"),
)

LLAMA = Architecture(
    names=("LlamaForCausalLM",),
    model_type="llama",
    base=BASE,
    fields=FIELDS,
    rows=(*EMBEDDINGS, *ATTENTION, *FEED_FORWARD, *NORMS),
    ignored=r".*rotary_emb\.inv_freq",
)
