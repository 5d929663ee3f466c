"""GPT-2 (Radford et al. 2019)."""

from transformer.activations.activation import GELU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import ACTIVATIONS, BIASES, choice, fixed, same

_LAYER = "transformer.h.{layer}"


def _conv1d(ours: str | tuple[str, ...], theirs: str):
    """A linear layer stored as (in, out), or several concatenated along the outputs."""
    names = (ours,) if isinstance(ours, str) else ours
    yield Row(tuple(f"{name}/kernel" for name in names), f"{_LAYER}.{theirs}.weight", "D [F] -> D F")
    yield Row(tuple(f"{name}/bias" for name in names), f"{_LAYER}.{theirs}.bias", "[F] -> F")


SIZES = (
    same("vocab_size", "vocab_size", default=50_257),
    same(("n_positions", "n_ctx"), "max_length", default=1024),
    same("n_embd", "d_model", default=768),
    same("n_layer", "num_layers", default=12),
    same("n_head", "mixer.num_heads", default=12),
    same("n_inner", "feed_forward.d_ff", default=None),
    same("layer_norm_epsilon", "norm.eps", default=1e-5),
    same("tie_word_embeddings", "head.tied", default=True),
)

GPT2 = Architecture(
    names=("GPT2LMHeadModel",),
    model_type="gpt2",
    base=ModelConfig(
        norm=LayerNorm(),
        position=Learned(),
        mixer=Attention(bias=BIASES),
        feed_forward=FeedForward(activation=GELU(tanh=True), bias=True),
    ),
    fields=(
        *SIZES,
        choice("activation_function", "feed_forward.activation", ACTIVATIONS, default="gelu_new"),
        fixed("scale_attn_weights", True),
        fixed("scale_attn_by_inverse_layer_idx", False),
        fixed("add_cross_attention", False),
    ),
    neutral=r"reorder_and_upcast_attn|summary_\w+",
    rows=(
        Row("embedding/table", "transformer.wte.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        Row("position/table", "transformer.wpe.weight"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.ln_1"),
        *_conv1d(("blocks/attention/query", "blocks/attention/key", "blocks/attention/value"), "attn.c_attn"),
        *_conv1d("blocks/attention/out", "attn.c_proj"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.ln_2"),
        *_conv1d("blocks/feed_forward/branches/0", "mlp.c_fc"),
        *_conv1d("blocks/feed_forward/out", "mlp.c_proj"),
        *norm("final_norm", "transformer.ln_f"),
    ),
    renames=((r"^(wte|wpe|h|ln_f)\.", r"transformer.\1."),),
    ignored=r".*\.attn\.(masked_)?bias",
)
