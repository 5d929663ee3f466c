"""The maximal update parametrization: one learning rate for all widths."""

from typing import Any

from transformer.core.parameters import FanIn, Parameter
from transformer.core.values import ConfigError
from transformer.mixers.attention.projections import InverseScale
from transformer.models.config import ModelConfig
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import ParameterGroup


def mup(config: RunConfig, base_width: int) -> dict[str, Any]:
    """What µP changes in a config, by dotted path (Yang et al. 2022, Tensor Programs V, table 8, Adam).

    The best learning rate at the base width is then about the best at any `d_model`: matrices of the layers are
    initialized with variance 1/fan-in, their learning rate is multiplied by base width / width and their decay
    divided by it (so that the product stays), logits have the same factor, and scores are q·k / head size.
    Tables, biases and gains stay as they are. `d_ff` and the size or number of heads should grow with `d_model`.

    Args:
      config: the run at its final width.
      base_width: the `d_model` at which learning rate and weight decay were tuned, with these changes made.

    Raises:
      ConfigError: the base width is not positive, the update rule does not take steps of Adam's size, or there is
        no µP rule for a choice.
    """
    if base_width < 1:
        raise ConfigError(f"mup: base width {base_width} is not a positive number")
    if not config.optimizer.rule.entrywise:
        raise ConfigError(f"mup: the steps of {config.optimizer.rule} are not of Adam's size; use adamw")
    for layer in range(config.model.pattern.period):
        _check_layer(config.model.layer_config(layer))
    factor = base_width / config.model.d_model
    # A group that matches no parameter is an error.
    patterns = ("*blocks*.kernel", *(("future.*.kernel",) if config.model.future_tokens else ()))
    hidden = (ParameterGroup(pattern, rate=factor, decay=1 / factor) for pattern in patterns)
    frozen, others = ([g for g in config.optimizer.groups if (g.rate == 0) is still] for still in (True, False))
    return {
        "model.initializer": FanIn(),
        "model.scale": InverseScale(),
        "model.logit_scale": factor,
        # First match wins: what is frozen stays so, and another group for these matrices matches nothing: refused.
        "optimizer.groups": (*frozen, *hidden, *others),
    }


def _check_layer(model: ModelConfig) -> None:
    """Raise `ConfigError` where sums over the width run over other arrays than kernels with `model.initializer`.

    The kernels of readout and pooling have one initial deviation at all widths; a convolution sums over tokens.
    """
    D, H, K = model.d_model, model.num_heads, model.head_size
    position, own = model.position.layer_parameters, model.residual_of("feed_forward")
    pooling = getattr(model, "pooling", None)
    uncovered = {
        "feed_forward=dense": model.feed_forward.num_experts,
        "position=rope": _matrices(position(H, K, D, K)) != _matrices(position(H, 2 * K, 2 * D, 2 * K)),
        "heads=plain": model.heads.parameters(model.head_sizes),
        "weighting=softmax": _matrices(model.weighting.parameters(H)),
        "convolution=none": model.convolution,
        "residual=pre": _matrices(model.residual.parameters(D)) != _matrices(model.residual.parameters(2 * D)),
        "feed_forward_residual=none": _matrices(own.parameters(D)) != _matrices(own.parameters(2 * D)),
        "readout=plain": _matrices(model.readout.parameters(D)),
        "pooling=mean": pooling is not None and pooling.parameters(D).keys() - {"token"},
        "resolution=full": _matrices(model.resolution.parameters(D)),
        "scale_embeddings=False": model.scale_embeddings,
        "unit_embeddings=False": model.unit_embeddings,
    }
    if wanted := next((choice for choice, found in uncovered.items() if found), None):
        name = wanted.partition("=")[0]
        raise ConfigError(f"mup: there is no rule for {name}={getattr(model, name)}; use {wanted}")


def _matrices(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    return {name: spec for name, spec in parameters.items() if len(spec.shape) > 1}
