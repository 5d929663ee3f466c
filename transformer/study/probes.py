"""Probes: numbers besides the loss, measured on the parameters of every run of an arm."""

import abc
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from transformer.analysis.activations import run_with_cache
from transformer.core.errors import ConfigError
from transformer.core.values import Variant
from transformer.data.dataset import Dataset, first_batch
from transformer.mixers.attention.base import Backend
from transformer.models.build import pure_model
from transformer.objectives.objective import Batch, Sums
from transformer.runs.config import RunConfig


class Probe(Variant):
    """A number for each run, besides its loss."""

    higher_is_better: ClassVar[bool] = False
    """Which of two numbers is the better one, where it is a study's primary metric."""
    before_training: ClassVar[bool] = False
    """Whether a study gives it the parameters that runs begin from, in place of those that they end with."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """The title of its column in the report."""

    @abc.abstractmethod
    def __call__(self, config: RunConfig, params: Any, data: Dataset) -> np.ndarray:
        """Values (R,) from parameters with a leading axis of runs; NaN where a value is not defined."""


@dataclass(frozen=True)
class LongerText(Probe):
    """The loss at tokens past the length of training, in text `factor` times as long, which is then `max_length`.

    (Press et al. 2021, section 3, without overlap.) In nats; NaN for a model that does not extrapolate, and for data
    whose sequences are never as long, or are packed documents, in each of which positions begin again.
    """

    factor: int = 2
    """Length over that of training, at least 2."""
    tokens: int = 32_768
    """Number of tokens of the validation part, from its beginning, in whole batches."""
    rise: bool = False
    """Whether the loss at the other tokens, those within the length of training, is subtracted."""

    def __post_init__(self):
        if self.factor < 2 or self.tokens < 1:
            raise ConfigError(f"longertext: {self} needs a factor of at least 2, and tokens")

    @property
    def label(self):
        return f"{'rise of loss' if self.rise else 'loss'} at {self.factor}x length"

    def __call__(self, config, params, data):
        length = config.model.max_length
        try:
            longer = config.replace({"model.max_length": self.factor * length})
            _, apply = pure_model(longer.model)
        except ConfigError:  # a choice in it has a fixed length
            return _undefined(params)
        position = config.model.position
        if position is not None and not position.extrapolates:
            return _undefined(params)
        whole = data.validation_batches(longer)
        if "segments" in whole or config.objective.labels(whole).shape[-1] <= length:
            return _undefined(params)
        num_batches = max(1, self.tokens // config.objective.labels(whole)[0].size)
        batches = {name: array[:num_batches] for name, array in whole.items()}
        objective = config.objective.plain()

        @jax.jit
        def loss(params, batches):
            sums = jax.lax.map(lambda batch: objective(apply, params, batch, None), batches)
            loss_L, weight_L = sums.loss.sum(0), sums.weight.sum(0)
            within, past = (loss_L[part].sum() / weight_L[part].sum() for part in (slice(length), slice(length, None)))
            return past - within if self.rise else past

        return each(params, lambda run: loss(run, batches))


@dataclass(frozen=True)
class SaturatedRows(Probe):
    """The share of queries with more than `above` of their attention on one key, over all layers and heads.

    Measured on the first batch of the validation part, without padding and the first token of a text, which may see
    only itself.
    """

    above: float = 0.99
    """Threshold on an attention weight, in (0, 1)."""

    def __post_init__(self):
        if not 0 < self.above < 1:
            raise ConfigError(f"saturatedrows.above: {self.above} is not between 0 and 1")

    @property
    def label(self):
        return f"rows above {self.above:g}"

    def __call__(self, config, params, data):
        return _of_weights(config, params, data, lambda rows_BHLS: rows_BHLS.max(-1) > self.above)


@dataclass(frozen=True)
class FirstKey(Probe):
    """The mean attention to the first token of a sequence, over all layers, heads and other tokens.

    (Gu X. et al. 2024, section 3, without their threshold.) Measured on the first batch of the validation part, without
    padding. Of packed documents it is the first token of their row, of a classifier with registers or a class token the
    first of these. NaN where the first key is no token, as with `memory`, `linformer` or downsampling.
    """

    @property
    def label(self):
        return "mass on the first token"

    def __call__(self, config, params, data):
        attentions = [kind.attention for kind in config.model.kinds if kind.attention is not None]
        fewer = any(getattr(config.model, name, None) for name in ("downsampling", "encoder_downsampling"))
        all_have_positions = all(part.keys_have_positions for each in attentions for part in each.parts)
        if fewer or not all_have_positions or any(each.mixes_tokens for each in attentions):
            return _undefined(params)
        return _of_weights(config, params, data, lambda rows_BHLS: rows_BHLS[..., 0])


@dataclass(frozen=True)
class QueryKeyGradient(Probe):
    """The norm of the gradient of all query and key kernels, on the first batch of the validation part.

    NaN for a model that projects neither.
    """

    @property
    def label(self):
        return "query-key gradient"

    def __call__(self, config, params, data):
        if not _attends(config):
            return _undefined(params)
        sums_of, batch = _first_batch(config, data)

        def loss(params):
            sums = sums_of(params, batch)
            return sums.loss.sum() / sums.weight.sum()

        @jax.jit
        def norm(params):
            flat, _ = jax.tree_util.tree_flatten_with_path(jax.grad(loss)(params))
            names = [([part.key for part in path], leaf) for path, leaf in flat]
            own = [leaf for name, leaf in names if {"query", "key"} & set(name) and name[-1] != "bias"]
            return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in own)) if own else jnp.nan

        return each(params, norm)


@dataclass(frozen=True)
class BeforeTraining(Probe):
    """Another probe on the parameters that runs begin from."""

    before_training = True
    probe: Probe
    """The other probe."""

    @property
    def label(self):
        return f"{self.probe.label}, before training"

    def __call__(self, config, params, data):
        return self.probe(config, params, data)


def _undefined(params: Any) -> np.ndarray:
    """(R,) NaN for each run."""
    return np.full(len(jax.tree.leaves(params)[0]), np.nan)


def each(params: Any, measure: Callable[[Any], Any]) -> np.ndarray:
    """A number that `measure` finds for each run, (R,), one after another; `params` has a leading axis of runs."""
    runs = jax.device_get(params)
    count = len(jax.tree.leaves(runs)[0])
    return np.array([float(measure(jax.tree.map(lambda a, i=i: jnp.asarray(a[i]), runs))) for i in range(count)])


def _of_weights(config: RunConfig, params: Any, data: Dataset, reduce: Callable[[jax.Array], jax.Array]) -> np.ndarray:
    """(R,) mean over layers and tokens that count of what `reduce` makes of attention weights, (B, H, L)."""
    if not _attends(config):
        return _undefined(params)
    sums_of, batch = _first_batch(config.replace(model=_exact(config.model)), data)

    def of_layer(name, rows_BHLS):
        values_BHL = reduce(rows_BHLS)
        return values_BHL.mean(where=_counted(name, batch, values_BHL.shape[-1])[:, None])

    @jax.jit
    def mean(params):
        _, found = run_with_cache(sums_of, params, batch, names="*attention.pattern")
        return jnp.mean(jnp.stack([of_layer(name, rows_BHLS) for name, rows_BHLS in found.items()]))

    return each(params, mean)


def _counted(name: str, batch: Batch, length: int) -> jax.Array:
    """(B or 1, L) whether each query of a layer is a real token, or one before the text, but not the first of a text.

    Of rows that do not say which of their tokens are real, those after the last label fill them. Where a layer has
    fewer tokens than the text, all but the first count.
    """
    valid_BL, positions = batch.get("valid"), batch.get("positions")
    if "source" in batch:
        valid_BL = batch["source_valid"] if name.startswith("encoder.") else batch["weights"] > 0
    elif valid_BL is None and "weights" in batch:
        valid_BL = jnp.cumsum(batch["weights"][:, ::-1], 1)[:, ::-1] > 0
    counted_BL = jnp.arange(length)[None] > 0
    if positions is not None and length == positions.shape[1] - 1:
        counted_BL = positions[:, :-1] > 0
    if valid_BL is None or length < valid_BL.shape[1]:
        return counted_BL
    return counted_BL & jnp.pad(valid_BL, ((0, 0), (length - valid_BL.shape[1], 0)), constant_values=True)


def _exact(value: Any) -> Any:
    """The value without any backend in it, since not all of them form attention weights."""
    if isinstance(value, Backend):
        return None
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return dataclasses.replace(value, **{f.name: _exact(getattr(value, f.name)) for f in dataclasses.fields(value)})


def _attends(config: RunConfig) -> bool:
    """Whether some layer has attention."""
    return any(kind.attention is not None for kind in config.model.kinds)


def _first_batch(config: RunConfig, data: Dataset) -> tuple[Callable[[Any, Batch], Sums], Batch]:
    """The objective as a function of (params, batch), and the first batch of the validation part."""
    _, apply = pure_model(config.model)
    objective = functools.partial(config.objective.plain(), apply)
    return lambda params, batch: objective(params, batch, None), first_batch(data.validation_batches(config))
