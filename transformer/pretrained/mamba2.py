"""Mamba-2 (Dao and Gu 2024)."""

from transformer.embeddings.embedding import Head
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.models.config import ModelConfig
from transformer.norms.norm import RMSNorm
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import fixed, same
from transformer.pretrained.recurrent import expand, mamba2_rows, step_limits

MAMBA2 = Architecture(
    names=("Mamba2ForCausalLM",),
    model_type="mamba2",
    base=ModelConfig(
        norm=RMSNorm(), position=None, mixer=Mamba2(), feed_forward=None, head=Head(tied=False), max_length=2**20
    ),
    fields=(
        same("vocab_size", "vocab_size", default=32_768),
        same("hidden_size", "d_model", default=4096),
        same("num_hidden_layers", "num_layers", default=64),
        same("num_heads", "mixer.num_heads", default=128),
        same("head_dim", "mixer.value_dim", default=64),
        same("state_size", "mixer.key_dim", default=128),
        same("n_groups", "mixer.num_key_heads", default=8),
        same("conv_kernel", "mixer.convolution", default=4),
        same("use_conv_bias", "mixer.convolution_bias", default=True),
        same("layer_norm_epsilon", "norm.eps", "mixer.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=False),
        fixed("use_bias", False),
        fixed("hidden_act", "silu"),
        step_limits(),
        expand("expand"),
    ),
    neutral="chunk_size|residual_in_fp32|rescale_prenorm_residual|layer_types|intermediate_size|rms_norm|norm_before_gate"
    "|time_step_(rank|min|max|floor|scale|init_scheme)",
    rows=(
        Row("embedding/table", "backbone.embeddings.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        *norm("final_norm", "backbone.norm_f"),
        *norm("blocks/mamba2_residual/norms/input", "backbone.layers.{layer}.norm"),
        *mamba2_rows("backbone.layers.{layer}.mixer"),
    ),
)
