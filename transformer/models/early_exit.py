"""The first layers of a model, as a model of its own."""

from itertools import chain

import jax

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Apply, Params
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig


def early_exit(config: ModelConfig, params: Params, num_layers: int) -> tuple[Params, Apply]:
    """(parameters, pure model) of the first `num_layers` layers, followed by the final norm and the logits.

    With `speculate` it guesses for the whole model (self-speculation: LayerSkip, Elhoushi et al. 2024, section 4.3).

    Args:
      config: of a model with one stack of layers.
      params: its parameters, which are cut and not copied.
      num_layers: at most as many as it has; whole turns of its pattern.

    Raises:
      ConfigError: the model has not so many layers, the config does not take them, or its residual connection counts
        them.
    """
    check_kind(config, ModelConfig, "early_exit")
    if not 0 < num_layers <= config.num_layers:
        raise ConfigError(f"early_exit: {num_layers} layers of a model with {config.num_layers}")
    if config.downsampling is not None or "blocks" not in params:
        raise ConfigError("early_exit: only a single stack whose layers all read the same tokens can be cut")
    residuals = [config.residual, *(made.residual for kind in config.kinds for made in chain(*kind.connections))]
    counting = [residual for residual in residuals if residual.counts_layers]
    if counting and num_layers < config.num_layers:
        raise ConfigError(f"early_exit: with {counting[0]} a layer depends on how many there are")
    distinct = min(num_layers, config.num_distinct_layers)
    shapes, apply = pure_model(
        config.replace(
            num_layers=num_layers, distinct_layers=distinct if distinct < num_layers else None, predict_ahead=0
        )
    )
    turns = distinct // config.period
    cut = params | {"blocks": jax.tree.map(lambda leaf: leaf[:turns], params["blocks"])}
    return {name: cut[name] for name in shapes}, apply
