"""OPT (Zhang S. et al. 2022), but for the one of 350 million parameters, which normalizes outputs."""

from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, Field, all_biases, choice, fixed, same

_LAYER = "model.decoder.layers.{layer}"


def _narrow() -> Field:
    """The width of the table, which has to be that of the model."""

    def read(fields):
        width = fields.get("hidden_size", 768)
        if (found := fields.get("word_embed_proj_dim")) not in (None, width):
            raise ConfigError(f"word_embed_proj_dim: {found} is not supported, only hidden_size, {width}")
        return {}

    return Field(("word_embed_proj_dim",), read, lambda config: {"word_embed_proj_dim": config.d_model})


OPT = Architecture(
    names=("OPTForCausalLM",),
    model_type="opt",
    base=ModelConfig(norm=LayerNorm(), position=Learned(), feed_forward=FeedForward(activation=ReLU())),
    fields=(
        same("vocab_size", "vocab_size", default=50_272),
        same("max_position_embeddings", "max_length", default=2048),
        same("hidden_size", "d_model", default=768),
        same("num_hidden_layers", "num_layers", default=12),
        same("num_attention_heads", "mixer.num_heads", default=12),
        same("ffn_dim", "feed_forward.d_ff", default=3072),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("activation_function", "feed_forward.activation", ACTIVATIONS, default="relu"),
        all_biases("enable_bias", default=True),
        _narrow(),
        fixed("do_layer_norm_before", True),
        fixed("_remove_final_layer_norm", False),
        fixed("layer_norm_elementwise_affine", True),
    ),
    rows=(
        Row("embedding/table", "model.decoder.embed_tokens.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        # The first two rows of the table were reserved for padding.
        Row("position/table", "model.decoder.embed_positions.weight", skip=2),
        *norm("final_norm", "model.decoder.final_layer_norm"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.self_attn_layer_norm"),
        *dense("blocks/attention/query", f"{_LAYER}.self_attn.q_proj"),
        *dense("blocks/attention/key", f"{_LAYER}.self_attn.k_proj"),
        *dense("blocks/attention/value", f"{_LAYER}.self_attn.v_proj"),
        *dense("blocks/attention/out", f"{_LAYER}.self_attn.out_proj"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.final_layer_norm"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.fc1"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.fc2"),
    ),
    renames=((r"^decoder\.", "model.decoder."),),
)
