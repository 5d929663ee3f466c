"""ModernBERT (Warner et al. 2024), the masked language model."""

from transformer.activations.activation import GELU, GLU
from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.rotary import RoPE
from transformer.pretrained import bert, llama
from transformer.pretrained.architecture import QKV, Architecture, Row, dense, joined, norm
from transformer.pretrained.fields import ACTIVATIONS, GATED, Field, Json, attention_bias, by_layer, choice, same, sizes
from transformer.pretrained.rotary_fields import rope_values
from transformer.pretrained.windows import KINDS, read_ropes, read_windows, write_ropes, write_windows
from transformer.residuals.residual import NoNormResidual, PreNorm

NUM_LAYERS, ATTENDED = 22, 128
"""Layers, and tokens on both sides together in a window, of a model whose file does not say."""
_LAYER = "model.layers.{layer}"


def _layers() -> Field:
    """What changes from layer to layer: windows in two of three, their positions, and no norm at the first attention,
    whose input is normalized already."""

    def usual(fields: Json) -> list[bool]:
        turn = fields.get("global_attn_every_n_layers", 3)
        return [i % turn != 0 for i in range(fields.get("num_hidden_layers", NUM_LAYERS))]

    def read(fields):
        size = fields.get("local_attention", ATTENDED) // 2 + 1
        windows = read_windows({**fields, "sliding_window": size}, usual, size)
        kinds = rope_values(fields, lambda scaling: dict.fromkeys(KINDS, scaling))
        bases = {"whole": fields.get("global_rope_theta", 1.6e5), "local": fields.get("local_rope_theta", 1e4)}
        positions = read_ropes(kinds, windows, **bases)
        residuals = [NoNormResidual(), *[PreNorm()] * (len(windows) - 1)]
        own = by_layer({"mixer.sparsity": windows, "position": positions, "residual": residuals})
        return {"position": positions[0]} | own

    def write(config):
        written = write_windows(config, ATTENDED // 2 + 1)
        kinds = written["layer_types"]
        attended = 2 * (written["sliding_window"] - 1)
        return {"local_attention": attended, "layer_types": kinds, **write_ropes(config, kinds)}

    names = ("local_attention", "layer_types", "global_attn_every_n_layers", "rope_parameters", "rope_scaling")
    return Field((*names, "global_rope_theta", "local_rope_theta"), read, write)


MODERNBERT = Architecture(
    names=("ModernBertForMaskedLM",),
    model_type="modernbert",
    base=ModelConfig(
        causal=False,
        norm=LayerNorm(),
        embedding_norm=LayerNorm(),
        final_norm=True,
        position=RoPE(),
        feed_forward=FeedForward(activation=GLU(gate=GELU()), residual=PreNorm()),
        head=Head(transform=DenseTransform()),
    ),
    fields=(
        *sizes(vocab_size=50_368, d_model=768, d_ff=1152, num_layers=NUM_LAYERS, num_heads=12, max_length=8192),
        same("norm_eps", "norm.eps", "embedding_norm.eps", "head.transform.norm.eps", default=1e-5),
        same("norm_bias", "norm.bias", "embedding_norm.bias", "head.transform.norm.bias", default=False),
        attention_bias("attention_bias", default=False),
        same("mlp_bias", "feed_forward.bias", default=False),
        same("classifier_bias", "head.transform.bias", default=False),
        same("decoder_bias", "head.bias", default=True),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("hidden_activation", "feed_forward.activation", GATED, default="gelu"),
        choice("classifier_activation", "head.transform.activation", ACTIVATIONS, default="gelu"),
        _layers(),
    ),
    neutral="initializer_cutoff_factor|layer_norm_eps|position_embedding_type|classifier_pooling|reference_compile"
    "|deterministic_flash_attn|sparse_(prediction|pred_ignore_index)|repad_logits_with_grad",
    rows=(
        Row("embedding/table", "model.embeddings.tok_embeddings.weight", also=("decoder.weight",)),
        *norm("embedding_norm", "model.embeddings.norm"),
        *joined(QKV, f"{_LAYER}.attn.Wqkv"),
        *dense("blocks/attention/out", f"{_LAYER}.attn.Wo"),
        *joined(llama.BRANCHES, f"{_LAYER}.mlp.Wi"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.Wo"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.attn_norm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.mlp_norm"),
        *norm("final_norm", "model.final_norm"),
        *bert.transform_rows("head.dense", "head.norm"),
        Row("logits/output/bias", "decoder.bias"),
        Row("output/table", "decoder.weight"),
    ),
)
