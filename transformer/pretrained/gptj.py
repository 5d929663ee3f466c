"""GPT-J (Wang and Komatsuzaki 2021)."""

from transformer.activations.activation import GELU
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.blocks import Parallel
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.rotary import RoPE
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, Field, choice, fixed, same, value_at

_LAYER = "transformer.h.{layer}"


def _rotary() -> Field:
    """The number of features of a head that are rotated; null: all."""

    def read(fields):
        head_dim = fields.get("n_embd", 4096) // fields.get("n_head", 16)
        rotated = fields.get("rotary_dim", 64)
        return {"position": RoPE(fraction=1.0 if rotated is None else rotated / head_dim, interleaved=True)}

    def write(config):
        return {"rotary_dim": round(config.position.fraction * value_at(config, "mixer.head_dim"))}

    return Field(("rotary_dim",), read, write)


GPTJ = Architecture(
    names=("GPTJForCausalLM",),
    model_type="gptj",
    base=ModelConfig(
        norm=LayerNorm(),
        block=Parallel(),
        feed_forward=FeedForward(activation=GELU(tanh=True), bias=True),
        head=Head(tied=False, bias=True),
    ),
    fields=(
        same("vocab_size", "vocab_size", default=50_400),
        same(("n_positions", "n_ctx"), "max_length", default=2048),
        same("n_embd", "d_model", default=4096),
        same("n_layer", "num_layers", default=28),
        same("n_head", "mixer.num_heads", default=16),
        same("n_inner", "feed_forward.d_ff", default=None),
        same("layer_norm_epsilon", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("activation_function", "feed_forward.activation", ACTIVATIONS, default="gelu_new"),
        _rotary(),
        fixed("scale_attn_weights", True),
        fixed("rotary", True),
    ),
    neutral=r"summary_\w+",
    rows=(
        Row("embedding/table", "transformer.wte.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        Row("logits/output/bias", "lm_head.bias"),
        *norm("final_norm", "transformer.ln_f"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.ln_1"),
        *dense("blocks/attention/query", f"{_LAYER}.attn.q_proj"),
        *dense("blocks/attention/key", f"{_LAYER}.attn.k_proj"),
        *dense("blocks/attention/value", f"{_LAYER}.attn.v_proj"),
        *dense("blocks/attention/out", f"{_LAYER}.attn.out_proj"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.mlp.fc_in"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.fc_out"),
    ),
    ignored=r".*\.attn\.(masked_)?bias",
)
