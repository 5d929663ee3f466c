"""Rotary positions and their scalings in published config.json files, of version 5 of `transformers` or before."""

import math
from collections.abc import Callable
from typing import Any

from transformer.core.errors import ConfigError, nearest
from transformer.positions.rotary import LinearScaling, Llama3Scaling, RoPE, RoPEScaling, YaRNByPair
from transformer.pretrained.fields import Field, Json

NO_SCALING: Json = {"rope_type": "default"}


def rope(
    *,
    base: float = 10_000.0,
    fraction: float | None = None,
    interleaved: bool = False,
    scaling: Json = NO_SCALING,
    scaled: bool = True,
) -> Field:
    """Rotary positions in the form of files since version 5 of `transformers`, and in the earlier form.

    Args:
      base: of a file that has none.
      fraction: of the features that a file without one rotates; None: the published code rotates all of them, whatever
        its file says.
      interleaved: how the published code pairs features.
      scaling: values of a file without any.
      scaled: whether the published code knows the scalings that we have.
    """

    def read(fields):
        values = rope_values(fields) or scaling
        old_base = fields.get("rope_theta", fields.get("rotary_emb_base", base))
        old_fraction = fields.get("partial_rotary_factor", fields.get("rotary_pct"))
        older = {} if old_fraction is None else {"partial_rotary_factor": old_fraction}
        if values.get("rope_type", values.get("type")) == "yarn" and "max_position_embeddings" in fields:
            older["original_max_position_embeddings"] = fields["max_position_embeddings"]
        position = read_rope(older | dict(values), base=old_base, fraction=fraction, interleaved=interleaved)
        if position.scaling is not None and not scaled:
            raise ConfigError(f"rope_parameters: {position.scaling} is not supported")
        return {"position": position}

    older = ("rope_scaling", "rope_theta", "rotary_emb_base", "partial_rotary_factor", "rotary_pct")
    return Field(
        ("rope_parameters", *older),
        read,
        lambda config: {"rope_parameters": write_rope(config.position, partial=fraction is not None)},
    )


def rope_values(fields: Json, earlier: Callable[[Any], Any] = lambda scaling: scaling) -> Any:
    """The values of rotary positions, in the field of files since version 5 of `transformers` or in the earlier one.

    Args:
      fields: of a config.json.
      earlier: makes of the earlier form what the later one would be.

    Raises:
      ConfigError: a file has both, and not the same in them.
    """
    newer, scaling = fields.get("rope_parameters"), fields.get("rope_scaling")
    if newer and scaling and newer != earlier(scaling):
        raise ConfigError(f"rope_scaling: {scaling} differs from rope_parameters; keep one of them")
    return newer or earlier(scaling)


def read_rope(values: Json, *, base: float, fraction: float | None = None, interleaved: bool = False) -> RoPE:
    """Rotary positions as `rope_parameters` say; by default with these values."""
    left = dict(values)
    found = float(left.pop("partial_rotary_factor", fraction or 1.0))
    if fraction is None and found != 1:
        raise ConfigError(f"partial_rotary_factor: {found:g} is not supported, all features are rotated here")
    position = RoPE(
        base=float(left.pop("rope_theta", base)),
        fraction=found,
        interleaved=interleaved,
        scaling=_read_scaling(left),
    )
    if left:
        raise ConfigError(f"rope_parameters: not supported: {', '.join(sorted(left))}")
    return position


def write_rope(position: RoPE, *, partial: bool = False) -> dict[str, Any]:
    """The field `rope_parameters`, with a fraction where the published code reads one."""
    values = {"rope_theta": position.base} | ({"partial_rotary_factor": position.fraction} if partial else {})
    return values | _write_scaling(position.scaling)


def _read_scaling(values: dict[str, Any]) -> RoPEScaling | None:
    """The scaling in these values, which are removed from them; None: none."""
    word = values.pop("rope_type", None) or values.pop("type", "default")
    values.pop("type", None)
    if word == "default":
        return None
    if word == "linear":
        return LinearScaling(float(values.pop("factor")))
    if word == "llama3":
        return Llama3Scaling(
            factor=float(values.pop("factor")),
            original_length=values.pop("original_max_position_embeddings"),
            slow=float(values.pop("low_freq_factor")),
            fast=float(values.pop("high_freq_factor")),
        )
    if word == "yarn":
        return _read_yarn(values)
    raise ConfigError(f"rope_parameters: no rope_type {word!r}{nearest(word, ['default', 'linear', 'llama3', 'yarn'])}")


def _read_yarn(values: dict[str, Any]) -> YaRNByPair:
    factor, sharpening = float(values.pop("factor")), values.pop("attention_factor", None)
    above, below = values.pop("mscale", None), values.pop("mscale_all_dim", None)
    if sharpening is None and above and below:
        sharpening = mscale(factor, above) / mscale(factor, below)
    return YaRNByPair(
        factor=factor,
        original_length=values.pop("original_max_position_embeddings"),
        slow=float(values.pop("beta_slow", None) or 1.0),
        fast=float(values.pop("beta_fast", None) or 32.0),
        whole=values.pop("truncate", True),
        sharpening=sharpening,
    )


def mscale(factor: float, share: float) -> float:
    """The factor of YaRN on queries and keys, with this share of its logarithm."""
    return 0.1 * share * math.log(factor) + 1


def _write_scaling(scaling: RoPEScaling | None) -> dict[str, Any]:
    if isinstance(scaling, LinearScaling):
        return {"rope_type": "linear", "factor": scaling.factor}
    if isinstance(scaling, Llama3Scaling):
        return {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original_length,
            "low_freq_factor": scaling.slow,
            "high_freq_factor": scaling.fast,
        }
    if isinstance(scaling, YaRNByPair):
        sharpening = {} if scaling.sharpening is None else {"attention_factor": scaling.sharpening}
        return sharpening | {
            "rope_type": "yarn",
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original_length,
            "beta_slow": scaling.slow,
            "beta_fast": scaling.fast,
            "truncate": scaling.whole,
        }
    return {"rope_type": "default"}
