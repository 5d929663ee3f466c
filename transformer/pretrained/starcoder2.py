"""StarCoder 2 (Lozhkov et al. 2024)."""

from transformer.activations.activation import GELU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.pretrained import llama
from transformer.pretrained.architecture import Architecture, dense
from transformer.pretrained.fields import ACTIVATIONS, all_biases, choice, fixed, kv_heads, same, sizes
from transformer.pretrained.rotary_fields import rope
from transformer.pretrained.windows import window

STARCODER2 = Architecture(
    names=("Starcoder2ForCausalLM",),
    model_type="starcoder2",
    base=ModelConfig(norm=LayerNorm(), feed_forward=FeedForward(activation=GELU(tanh=True))),
    fields=(
        *sizes(vocab_size=49_152, d_model=3072, d_ff=12_288, num_layers=30, num_heads=24, max_length=4096),
        kv_heads(default=2),
        same("norm_epsilon", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="gelu_pytorch_tanh"),
        all_biases("use_bias", default=True),
        window(),
        rope(),
        fixed("mlp_type", "default"),
        fixed("norm_type", "layer_norm"),
        fixed("scale_attn_weights", True),
    ),
    neutral="activation_function|layer_norm_epsilon|(scale_)?attention_softmax_in_fp32",
    rows=(
        *llama.EMBEDDINGS,
        *llama.ATTENTION,
        *llama.NORMS,
        *dense("blocks/feed_forward/branches/0", f"{llama.LAYER}.mlp.c_fc"),
        *dense("blocks/feed_forward/out", f"{llama.LAYER}.mlp.c_proj"),
    ),
)
