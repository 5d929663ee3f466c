"""Persimmon (Adept 2023)."""

from transformer.activations.activation import SquaredReLU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.head_norms import QKNorm
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import QKV, Architecture, dense, joined, norm
from transformer.pretrained.fields import ACTIVATIONS, BIASES, choice, fixed, norms_eps, same, sizes
from transformer.pretrained.rotary_fields import rope

PERSIMMON = Architecture(
    names=("PersimmonForCausalLM",),
    model_type="persimmon",
    base=ModelConfig(
        norm=LayerNorm(),
        mixer=Attention(bias=BIASES, parts=(QKNorm(LayerNorm()),)),
        feed_forward=FeedForward(activation=SquaredReLU(), bias=True),
        head=Head(tied=False),
    ),
    fields=(
        *sizes(vocab_size=262_144, d_model=4096, d_ff=16_384, num_layers=36, num_heads=64, max_length=16_384),
        norms_eps("layer_norm_eps", QKNorm(LayerNorm()), default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="relu2"),
        rope(fraction=0.5),
        fixed("qk_layernorm", True),
    ),
    neutral="num_key_value_heads",  # all heads have their own
    rows=(
        *llama.EMBEDDINGS[:2],
        *norm("final_norm", "model.final_layernorm"),
        *joined(QKV, f"{llama.LAYER}.self_attn.query_key_value", "(H [n] K)"),
        *llama.head_norms("qk_norm", theirs=("q_layernorm", "k_layernorm")),
        *dense("blocks/attention/out", f"{llama.LAYER}.self_attn.dense"),
        *dense("blocks/feed_forward/branches/0", f"{llama.LAYER}.mlp.dense_h_to_4h"),
        *dense("blocks/feed_forward/out", f"{llama.LAYER}.mlp.dense_4h_to_h"),
        *llama.NORMS,
    ),
)
