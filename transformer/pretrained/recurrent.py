"""Fields and tensors of recurrent mixers, which several published architectures have."""

from collections.abc import Sequence
from typing import Any

from transformer.core.errors import ConfigError, nearest
from transformer.mixers.attention.attention import Attention
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.pretrained.architecture import Row
from transformer.pretrained.fields import Field, Json, first, layer_values

KINDS = ("linear_attention", "full_attention")
"""Words for the kinds of layers."""
OLDER = {"mamba": KINDS[0], "attention": KINDS[1]}
"""Earlier words for them."""


def convolved(ours: str, roles: Sequence[str], theirs: str) -> Row:
    """The short convolution of what was projected, in this order."""
    return Row(tuple(f"{ours}/{role}_taps" for role in roles), f"{theirs}.weight", "[X] 1 ~W -> W X")


def delta_rows(theirs: str) -> tuple[Row, ...]:
    """The tensors of Gated DeltaNet, but for projections, convolution, norm and output."""
    ours = "blocks/gated_deltanet/params"
    return (
        Row(f"{ours}/forget_bias", f"{theirs}.dt_bias"),
        Row(f"{ours}/forget_rate", f"{theirs}.A_log"),
    )


def delta_rule(fields: Json, **more: Any) -> GatedDeltaNet:
    """Gated DeltaNet as fields say."""
    return GatedDeltaNet(
        num_heads=fields.get("linear_num_value_heads", 32),
        num_key_heads=fields.get("linear_num_key_heads", 16),
        key_dim=fields.get("linear_key_head_dim", 128),
        value_dim=fields.get("linear_value_head_dim", 128),
        convolution=fields.get("linear_conv_kernel_dim", 4),
        **more,
    )


DELTA_FIELDS = (
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    *("linear_conv_kernel_dim", "layer_types", "full_attention_interval"),
)


def attending(fields: Json, num_layers: int) -> list[bool]:
    """Which layers are of attention, as they are listed, or else the last of every few; `num_layers` by default."""
    every = fields.get("full_attention_interval", 4)
    usual = [KINDS[(i + 1) % every == 0] for i in range(fields.get("num_hidden_layers", num_layers))]
    return of_attention(layer_values("layer_types", fields) or usual)


def of_attention(kinds: Sequence[str]) -> list[bool]:
    """Which of the kinds are attention.

    Raises:
      ConfigError: there is no such kind.
    """
    known = [OLDER.get(kind, kind) for kind in kinds]
    if unknown := next((kind for kind in known if kind not in KINDS), None):
        raise ConfigError(f"layer_types: no {unknown!r}{nearest(unknown, KINDS)}")
    return [kind == KINDS[1] for kind in known]


def delta_fields(layers: Sequence[Mixer]) -> dict[str, Any]:
    """The fields of `delta_rule` and `attending`."""
    recurrent = first(GatedDeltaNet, layers)
    return {
        "linear_num_key_heads": recurrent.key_heads,
        "linear_num_value_heads": recurrent.num_heads,
        "linear_key_head_dim": recurrent.key_dim,
        "linear_value_head_dim": recurrent.value_dim,
        "linear_conv_kernel_dim": recurrent.convolution,
        "layer_types": [KINDS[isinstance(mixer, Attention)] for mixer in layers],
    }


def mamba2_rows(theirs: str) -> tuple[Row, ...]:
    """The tensors of the mixer: gate, values, keys, queries and step sizes are one matrix."""
    ours = "blocks/mamba2/params"

    roles = ("value", "key", "query")
    projected = tuple(f"{ours}/{name}" for name in ("gate", "value", "key", "query", "step"))
    return (
        Row(projected, f"{theirs}.in_proj.weight", "[F] D -> D F"),
        convolved(ours, roles, f"{theirs}.conv1d"),
        Row(tuple(f"{ours}/{role}_bias" for role in roles), f"{theirs}.conv1d.bias", "[X] -> X"),
        Row(f"{ours}/step_bias", f"{theirs}.dt_bias"),
        Row(f"{ours}/fading", f"{theirs}.A_log"),
        Row(f"{ours}/skip", f"{theirs}.D"),
        Row(f"{ours}/norm", f"{theirs}.norm.weight"),
        Row(f"{ours}/out", f"{theirs}.out_proj.weight", "F D -> D F"),
    )


def step_limits() -> Field:
    """Bounds of the step size, which are 0 and infinity."""

    def read(fields):
        lower, upper = fields.get("time_step_limit", (0.0, float("inf")))
        if lower != 0 or upper not in (float("inf"), {"__float__": "Infinity"}):
            raise ConfigError(f"time_step_limit: {fields['time_step_limit']} is not supported, only [0, inf]")
        return {}

    return Field(("time_step_limit",), read, lambda config: {})


def expand(name: str) -> Field:
    """The factor from the width to that of the values, which follows from our sizes."""

    def write(config):
        kind = next((kind for kind in config.kinds if isinstance(kind.mixer, Mamba2)), None)
        return {} if kind is None else {name: kind.mixer.num_heads * kind.mixer.sizes(kind)[1] // kind.d_model}

    return Field((name,), lambda fields: {}, write)
