"""Merging the forms of linear layers (`weights`) into their kernels."""

from collections.abc import Mapping

import jax
from flax import nnx

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Dense, Params
from transformer.core.weights import Weights
from transformer.models.build import abstract_model
from transformer.models.config import ModelConfig


def merged(config: ModelConfig, params: Params) -> tuple[ModelConfig, Params]:
    """The config without `weights`, and the parameters with which it computes the same.

    What was trained beside a published model is then such a model again, to be exported, put into 8 bits, or decoded
    without making its matrices for each token.

    Raises:
      ConfigError: the config has none.
    """
    check_kind(config, ModelConfig, "merged")
    if config.weights is None:
        raise ConfigError("merged: model.weights is none, so that there is nothing to merge")
    layers = ((path, layer) for path, layer in nnx.iter_graph(abstract_model(config)) if isinstance(layer, Dense))
    forms = {tuple(map(str, path)): layer.form for path, layer in layers if layer.form is not None}
    return config.replace(weights=None), _merged(params, forms)


def _merged(tree: Params, forms: Mapping[tuple[str, ...], Weights], path: tuple[str, ...] = ()) -> Params:
    """A tree of parameters below a path, with one kernel in place of what a layer's form reads."""
    if path not in forms:
        inner = {name: (*path, name) for name, below in tree.items() if isinstance(below, dict)}
        return tree | {name: _merged(tree[name], forms, own) for name, own in inner.items()}
    form, kernel = forms[path], tree["kernel"]
    for _ in kernel.shape[:-2]:  # stacked layers
        form = jax.vmap(form)
    return {name: leaf for name, leaf in tree.items() if name != "weights"} | {
        "kernel": form(kernel, tree.get("weights", {}))
    }
