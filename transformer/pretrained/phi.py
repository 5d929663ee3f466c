"""Phi-1, 1.5 and 2 (Gunasekar et al. 2023; Li Y. et al. 2023)."""

from transformer.activations.activation import GELU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.blocks import Parallel
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, BIASES, choice, fixed, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope

PHI = Architecture(
    names=("PhiForCausalLM",),
    model_type="phi",
    base=ModelConfig(
        norm=LayerNorm(),
        block=Parallel(),
        mixer=Attention(bias=BIASES),
        feed_forward=FeedForward(activation=GELU(tanh=True), bias=True),
        head=Head(tied=False, bias=True),
    ),
    fields=(
        *sizes(vocab_size=51_200, d_model=2048, d_ff=8192, num_layers=24, num_heads=32, max_length=2048),
        kv_heads(default=None),
        same("layer_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="gelu_new"),
        rope(fraction=0.5),
        fixed("qk_layernorm", False),
    ),
    rows=(
        *llama.EMBEDDINGS[:2],
        Row("logits/output/bias", "lm_head.bias"),
        *norm("final_norm", "model.final_layernorm"),
        *norm("blocks/attention_residual/norms/input", f"{llama.LAYER}.input_layernorm"),
        *llama.ATTENTION[:6],
        *dense("blocks/attention/out", f"{llama.LAYER}.self_attn.dense"),
        *dense("blocks/feed_forward/branches/0", f"{llama.LAYER}.mlp.fc1"),
        *dense("blocks/feed_forward/out", f"{llama.LAYER}.mlp.fc2"),
    ),
)
