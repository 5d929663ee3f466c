"""The maximal update parametrization: one learning rate for all widths."""

import functools
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import jax

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import dotted
from transformer.core.parameters import FanIn, Parameter
from transformer.core.values import to_text
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.base import Scale
from transformer.mixers.attention.projections import InverseScale
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig
from transformer.models.images import PatchConfig
from transformer.models.pattern import Alternate
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import ParameterGroup

HIDDEN = ("*blocks*.kernel", "future.*.kernel", "bridge.kernel")
"""Paths of the matrices whose two sides grow with the width."""


def mup(config: RunConfig, base_width: int, base_head_dim: int = 1) -> dict[str, Any]:
    """What µP changes in a config, by dotted path (Yang et al. 2022, Tensor Programs V, table 8, Adam).

    The best learning rate at the base width is then about the best at any `d_model`: matrices of the layers are
    initialized with variance 1/fan-in, their learning rate is multiplied by base width / width and their decay
    divided by it (so that the product stays), logits have the same factor, and scores are q·k √(base head size) / head
    size. Tables, biases and gains stay as they are. `d_ff` and the size or number of heads should grow with `d_model`.

    Args:
      config: the run at its final width.
      base_width: the `d_model` at which learning rate and weight decay were tuned, with these changes made.
      base_head_dim: the size of a head there, with which scores at that width are the usual ones.

    Raises:
      ConfigError: the base width is not positive, the update rule does not take steps of Adam's size, or there is
        no µP rule for a choice.
    """
    check_kind(config, RunConfig, "mup")
    if base_width < 1:
        raise ConfigError(f"mup: base width {base_width} is not a positive number")
    if not config.optimizer.rule.entrywise:
        raise ConfigError(f"mup: the steps of {config.optimizer.rule} are not of Adam's size; use adamw")
    model, factor = config.model, base_width / config.model.d_model
    for kind in model.kinds:
        _check_layer(kind)
    if turns := next((one for one in model.pattern if one.path in ("mixer.scale", "mixer.normalizer")), None):
        raise ConfigError(f"mup: there is no rule for model.pattern of {turns.path}; alternate mixer")
    matrices = [path for path in _paths(model) if any(fnmatchcase(path, pattern) for pattern in HIDDEN)]
    # A group that matches no parameter is an error.
    patterns = [pattern for pattern in HIDDEN if any(fnmatchcase(path, pattern) for path in matrices)]
    hidden = [ParameterGroup(pattern, rate=factor, decay=1 / factor) for pattern in patterns]
    frozen, others = ([g for g in config.optimizer.groups if (g.rate == 0) is still] for still in (True, False))
    if taken := [g.pattern for g in others if any(fnmatchcase(path, g.pattern) for path in matrices)]:
        raise ConfigError(f"mup: optimizer.groups: {taken[0]!r} has matrices of the layers, whose rates µP sets")
    return {
        "model.initializer": FanIn(),
        **_scales(config.model, InverseScale(base_head_dim)),
        "model.head.scale": factor * model.head.scale,
        "optimizer.groups": (*frozen, *hidden, *others),  # the first match wins: what is frozen stays so
    }


def _paths(model: ModelConfig) -> list[str]:
    """The paths of all parameters; sizes that the data would set do not matter."""
    of_data = ("vocab_size", "source_vocab_size", "num_classes", "features", "outputs")
    sizes: dict[str, Any] = {name: 8 for name in of_data if getattr(model, name, 8) is None}
    if isinstance(model, PatchConfig) and model.image_size is None:
        sizes["image_size"] = (model.patch_size, model.patch_size, 1)
    leaves = jax.tree.leaves_with_path(pure_model(model.replace(sizes))[0])
    return [dotted(path) for path, _ in leaves]


def _check_layer(model: ModelConfig) -> None:
    """Raise `ConfigError` where sums over the width run over other arrays than kernels with `model.initializer`.

    The kernels of head and pooling have one initial deviation at all widths; a convolution sums over tokens.
    """
    D, attention, feed_forward = model.d_model, model.attention, model.feed_forward
    own = model.residual if feed_forward is None else feed_forward.connection(model)
    pooling, position = getattr(model, "pooling", None), model.position
    uncovered = {
        "mixer=attention": model.mixer is not None and attention is None,
        "block=sequential": any(mixer is not model.mixer for mixer in model.mixers),
        "feed_forward=dense": feed_forward is not None and (feed_forward.routed or model.looks_back),
        "position=rope": position is not None and _grows(lambda n: position.layer_parameters(4, 8 * n, D * n, 8 * n)),
        "residual=pre": _grows(lambda n: model.residual.parameters(D * n)),
        "feed_forward.residual=none": _grows(lambda n: own.parameters(D * n)),
        "head.transform=none": model.head.transform,
        "pooling=mean": pooling is not None and pooling.parameters(D).keys() - {"token"},
        "downsampling=none": model.downsampling is not None and _matrices(model.downsampling.parameters(D)),
        "weights=none": model.weights is not None and model.weights.parameters(D, D),
        "embedding.scaled=False": model.embedding.scaled,
        "embedding.unit_length=False": model.embedding.unit_length,
    }
    if attention is not None:
        shape, heads, normalizer = attention.shape(model), attention.heads, attention.normalizer
        sharing = attention.sharing
        uncovered |= {
            "mixer.heads=none": heads is not None and heads.parameters(attention.sizes(model), model.d_model),
            "mixer.normalizer=none": normalizer is not None and _matrices(normalizer.parameters(shape.num_maps)),
            "mixer.sharing=none": sharing is not None and _matrices(sharing.parameters(shape, model)),
            "mixer.parts=()": any(_others(part.parameters(attention, model), model) for part in attention.parts),
        }
    if wanted := next((choice for choice, found in uncovered.items() if found), None):
        name = wanted.partition("=")[0]
        found = functools.reduce(getattr, name.split("."), model)
        raise ConfigError(f"mup: there is no rule for {name}={to_text(found)}; use {wanted}")


def _scales(model: ModelConfig, inverse: Scale) -> dict[str, Any]:
    """The factor on q·k of every attention that has one, by dotted path."""
    turns = next((one for one in model.pattern if one.path == "mixer"), None)
    own = _is_scaled(model.mixer) and (turns is None or model.mixer in turns.values)
    changes: dict[str, Any] = {"model.mixer.scale": inverse} if own else {}
    return changes if turns is None else changes | {"model.pattern": tuple(_scaled(o, inverse) for o in model.pattern)}


def _scaled(one: Alternate, scale: Scale) -> Alternate:
    if one.path != "mixer":
        return one
    values = (replace(value, scale=scale) if _is_scaled(value) else value for value in one.values)
    return replace(one, values=tuple(values))


def _is_scaled(mixer: Any) -> bool:
    """Whether it is attention in which a factor on q·k does not cancel."""
    return isinstance(mixer, Attention) and (mixer.normalizer is None or mixer.normalizer.scaled)


def _others(parameters: dict[str, Parameter], model: ModelConfig) -> dict[str, Parameter]:
    """The matrices that are no kernels of the width."""
    own = _matrices(parameters)
    usual = ("kernel", model.initializer, model.d_model)
    return {name: spec for name, spec in own.items() if (name, spec.initializer, spec.shape[0]) != usual}


def _grows(parameters: Callable[[int], dict[str, Parameter]]) -> bool:
    """Whether some matrix is larger in a model that is twice as wide."""
    return _matrices(parameters(1)) != _matrices(parameters(2))


def _matrices(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    return {name: spec for name, spec in parameters.items() if len(spec.shape) > 1}
