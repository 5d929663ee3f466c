"""Mamba-2 (Dao and Gu 2024)."""

from transformer.core.values import ConfigError
from transformer.embeddings.embedding import Head
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.models.config import ModelConfig
from transformer.norms.norm import RMSNorm
from transformer.pretrained.architecture import Architecture, Row, norm
from transformer.pretrained.fields import Field, fixed, same


def mixer_rows(theirs: str) -> tuple[Row, ...]:
    """The tensors of the mixer: gate, values, keys, queries and step sizes are one matrix."""
    ours = "blocks/mamba2/params"

    def convolved(kind: str) -> tuple[str, ...]:
        return tuple(f"{ours}/{role}_{kind}" for role in ("value", "key", "query"))

    projected = tuple(f"{ours}/{name}" for name in ("gate", "value", "key", "query", "step"))
    return (
        Row(projected, f"{theirs}.in_proj.weight", "[F] D -> D F"),
        Row(convolved("taps"), f"{theirs}.conv1d.weight", "[X] 1 ~W -> W X"),
        Row(convolved("bias"), f"{theirs}.conv1d.bias", "[X] -> X"),
        Row(f"{ours}/step_bias", f"{theirs}.dt_bias"),
        Row(f"{ours}/fading", f"{theirs}.A_log"),
        Row(f"{ours}/skip", f"{theirs}.D"),
        Row(f"{ours}/norm", f"{theirs}.norm.weight"),
        Row(f"{ours}/out", f"{theirs}.out_proj.weight", "F D -> D F"),
    )


def _limits() -> Field:
    """Bounds of the step size, which are 0 and infinity."""

    def read(fields):
        lower, upper = fields.get("time_step_limit", (0.0, float("inf")))
        if lower != 0 or upper not in (float("inf"), {"__float__": "Infinity"}):
            raise ConfigError(f"time_step_limit: {fields['time_step_limit']} is not supported, only [0, inf]")
        return {}

    return Field(("time_step_limit",), read, lambda config: {})


def _expand() -> Field:
    def write(config):
        return {"expand": config.mixer.num_heads * config.mixer.sizes(config)[1] // config.d_model}

    return Field(("expand",), lambda fields: {}, write)


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
        _limits(),
        _expand(),
    ),
    neutral="chunk_size|residual_in_fp32|rescale_prenorm_residual|time_step_(rank|min|max|floor)|layer_types",
    rows=(
        Row("embedding/table", "backbone.embeddings.weight"),
        Row("output/table", "lm_head.weight"),
        *norm("final_norm", "backbone.norm_f"),
        *norm("blocks/mamba2_residual/norms/input", "backbone.layers.{layer}.norm"),
        *mixer_rows("backbone.layers.{layer}.mixer"),
    ),
)
