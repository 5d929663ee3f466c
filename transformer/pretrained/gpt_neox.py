"""GPT-NeoX (Black et al. 2022), and Pythia."""

from transformer.activations.activation import GELU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.blocks import ParallelNorms, Sequential
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.pretrained.architecture import QKV, Architecture, Row, dense, joined, norm
from transformer.pretrained.fields import ACTIVATIONS, attention_bias, choice, fixed, same
from transformer.pretrained.rotary_fields import rope

_LAYER = "gpt_neox.layers.{layer}"

GPT_NEOX = Architecture(
    names=("GPTNeoXForCausalLM",),
    model_type="gpt_neox",
    base=ModelConfig(norm=LayerNorm(), feed_forward=FeedForward(activation=GELU(), bias=True)),
    fields=(
        same("vocab_size", "vocab_size", default=50_432),
        same("max_position_embeddings", "max_length", default=2048),
        same("hidden_size", "d_model", default=6144),
        same("num_hidden_layers", "num_layers", default=44),
        same("num_attention_heads", "mixer.num_heads", default=64),
        same("intermediate_size", "feed_forward.d_ff", default=24_576),
        same("layer_norm_eps", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="gelu"),
        choice("use_parallel_residual", "block", {True: ParallelNorms(), False: Sequential()}, default=True),
        attention_bias("attention_bias", default=True),
        rope(fraction=0.25),
        fixed("is_decoder", False),
    ),
    rows=(
        Row("embedding/table", "gpt_neox.embed_in.weight", also=("embed_out.weight",)),
        Row("output/table", "embed_out.weight"),
        *norm("final_norm", "gpt_neox.final_layer_norm"),
        *norm("blocks/attention_residual/norms/attention", f"{_LAYER}.input_layernorm"),
        *norm("blocks/attention_residual/norms/feed_forward", f"{_LAYER}.post_attention_layernorm"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.input_layernorm"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.post_attention_layernorm"),
        *joined(QKV, f"{_LAYER}.attention.query_key_value", "(H [n] K)"),
        *dense("blocks/attention/out", f"{_LAYER}.attention.dense"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.mlp.dense_h_to_4h"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.dense_4h_to_h"),
    ),
    ignored=r".*\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",
)
