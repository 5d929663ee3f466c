"""GPT-Neo (Black et al. 2021), and TinyStories (Eldan and Li 2023)."""

from transformer.activations.activation import GELU
from transformer.core.errors import ConfigError, nearest
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.projections import ConstantScale
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, Field, by_layer, choice, of_layers, same

_LAYER = "transformer.h.{layer}"
_KINDS = ("global", "local")


def _windows() -> Field:
    """The layers with a window, listed as turns and how often each is taken."""

    def read(fields):
        turns = fields.get("attention_types") or [[list(_KINDS), 12]]
        kinds = fields.get("attention_layers") or [kind for turn, times in turns for kind in turn * times]
        if unknown := next((kind for kind in kinds if kind not in _KINDS), None):
            raise ConfigError(f"attention_types: no {unknown!r}{nearest(str(unknown), _KINDS)}")
        local = SlidingWindow(fields.get("window_size", 256))
        return by_layer({"mixer.sparsity": [local if kind == "local" else None for kind in kinds]})

    def write(config):
        windows = of_layers(config, "mixer.sparsity")
        sizes = [window.size for window in windows if isinstance(window, SlidingWindow)]
        kinds = [_KINDS[isinstance(window, SlidingWindow)] for window in windows]
        return {"attention_types": [[kinds, 1]], "attention_layers": kinds, "window_size": max(sizes, default=256)}

    return Field(("attention_types", "attention_layers", "window_size"), read, write)


GPT_NEO = Architecture(
    names=("GPTNeoForCausalLM",),
    model_type="gpt_neo",
    base=ModelConfig(
        norm=LayerNorm(),
        position=Learned(),
        mixer=Attention(bias=("out",), scale=ConstantScale(1.0)),
        feed_forward=FeedForward(activation=GELU(tanh=True), bias=True),
    ),
    fields=(
        same("vocab_size", "vocab_size", default=50_257),
        same("max_position_embeddings", "max_length", default=2048),
        same("hidden_size", "d_model", default=2048),
        same("num_layers", "num_layers", default=24),
        same("num_heads", "mixer.num_heads", default=16),
        same("intermediate_size", "feed_forward.d_ff", default=None),
        same("layer_norm_epsilon", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=True),
        choice("activation_function", "feed_forward.activation", ACTIVATIONS, default="gelu_new"),
        _windows(),
    ),
    neutral=r"summary_\w+",
    rows=(
        Row("embedding/table", "transformer.wte.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        Row("position/table", "transformer.wpe.weight"),
        *norm("final_norm", "transformer.ln_f"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.ln_1"),
        *dense("blocks/attention/query", f"{_LAYER}.attn.attention.q_proj"),
        *dense("blocks/attention/key", f"{_LAYER}.attn.attention.k_proj"),
        *dense("blocks/attention/value", f"{_LAYER}.attn.attention.v_proj"),
        *dense("blocks/attention/out", f"{_LAYER}.attn.attention.out_proj"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.ln_2"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.mlp.c_fc"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.c_proj"),
    ),
    ignored=r".*\.attention\.(masked_)?bias",
)
