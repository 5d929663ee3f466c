"""In-context linear regression as data: values of an unknown linear function at points, each to be predicted."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.data.dataset import Batch, Examples, described, fingerprint_arrays, load_data
from transformer.models.vectors import VectorConfig
from transformer.objectives.objective import Objective
from transformer.objectives.vectors import Regression
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig, check_at_least


@dataclass(frozen=True, kw_only=True)
class InContextRegressionConfig(DataConfig):
    """Sequences x₁ y₁ x₂ y₂ … with y = w·x, where x and the w of each sequence are standard normal.

    The model predicts each y at its x (Garg et al. 2022, section 3). The loss is (prediction - y)², whose mean without
    any knowledge is `dimensions`; the figures of the paper divide by that.
    """

    dimensions: int = 5
    """Numbers in an x."""
    points: int = 11
    """Pairs of x and y in a sequence; `points` twice is its length."""
    examples: int = 50_000
    """Number of sequences for training."""
    validation_examples: int = 1_000
    """Number of sequences held out, which do not depend on `examples`."""
    noise: float = 0.0
    """Standard deviation of a normal number that is added to each y; x and w do not depend on it."""
    seed: int = 0
    """Seed of the sequences; their order in training depends on the replica's seed."""

    def __post_init__(self):
        super().__post_init__()
        check_at_least(self, 1, "dimensions", "points", "examples", "validation_examples")
        check_at_least(self, 0, "noise", "seed")


@dataclass(frozen=True, kw_only=True)
class InContextRegressionRun(RunConfig):
    """A run that trains a transformer to fit linear functions in context."""

    model: VectorConfig = VectorConfig()
    data: InContextRegressionConfig = InContextRegressionConfig()
    objective: Objective = Regression()


@dataclass(frozen=True, kw_only=True)
class Functions(Examples):
    """Points of a function in each row, with (N, 2 · points) places.

    `inputs` (…, dimensions) are x and then y, before zeros; `labels` (…, 1) have y at the place of its x, which is
    where `weights` are 1.
    """

    description: InContextRegressionConfig = InContextRegressionConfig()

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the sizes of the vectors, unless it sets its own.

        Raises:
          ConfigError: its own are others, or the model is too short.
        """
        config = described(config, self.description)
        length, features = self.train["inputs"].shape[1:]
        for name, size in (("features", features), ("outputs", 1)):
            if (own := getattr(config.model, name)) not in (None, size):
                raise ConfigError(f"model.{name}: {own}, but {self.source} has {size}")
            config = config.replace({f"model.{name}": size})
        if config.model.max_length < length:
            raise ConfigError(f"model.max_length: {config.model.max_length}, but {self.source} has {length} vectors")
        return config

    def reference(self) -> tuple[str, float]:
        """Name and mean squared error of least squares from the points before each."""
        x_NPD, y_NP = self.validation["inputs"][:, ::2], self.validation["labels"][:, ::2, 0]
        return "least squares", float(np.square(least_squares(x_NPD, y_NP) - y_NP).mean())


def least_squares(x_NPD: np.ndarray, y_NP: np.ndarray) -> np.ndarray:
    """w·x at each point, (N, P), w the shortest of those that fit the points before it best; 0 at the first."""
    x_NPD, y_NP = x_NPD.astype(np.float64), y_NP.astype(np.float64)
    guesses_NP = np.zeros(y_NP.shape)
    for i in range(1, y_NP.shape[1]):
        w_ND = (np.linalg.pinv(x_NPD[:, :i]) @ y_NP[:, :i, None])[..., 0]
        guesses_NP[:, i] = (w_ND * x_NPD[:, i]).sum(-1)
    return guesses_NP


def draw(config: InContextRegressionConfig, count: int, part: int) -> Batch:
    """The arrays of `count` sequences (see `Functions`), others for each number `part`."""
    rng, size = np.random.default_rng([config.seed, part]), (count, config.points)
    w_ND = rng.standard_normal((count, config.dimensions))
    x_NPD = rng.standard_normal((*size, config.dimensions)).astype(np.float32)
    y_NP = np.einsum("npd,nd->np", x_NPD, w_ND) + config.noise * rng.standard_normal(size)
    inputs_NLD = np.zeros((count, 2 * config.points, config.dimensions), np.float32)
    labels_NLO = np.zeros((count, 2 * config.points, 1), np.float32)
    weights_NL = np.zeros((count, 2 * config.points), np.float32)
    inputs_NLD[:, ::2], inputs_NLD[:, 1::2, 0] = x_NPD, y_NP
    labels_NLO[:, ::2, 0], weights_NL[:, ::2] = y_NP, 1.0
    return {"inputs": inputs_NLD, "labels": labels_NLO, "weights": weights_NL}


@load_data.register
def load_regression(config: InContextRegressionConfig, stored: str | Path | None = None) -> Functions:
    """Draw the sequences."""
    train, validation = draw(config, config.examples, 0), draw(config, config.validation_examples, 1)
    return Functions(
        train=train,
        validation=validation,
        tokenizer=None,
        description=config,
        source=f"linear regression, {config.points} points of {config.dimensions} dimensions",
        fingerprint=fingerprint([config, fingerprint_arrays(train), fingerprint_arrays(validation)]),
    )
