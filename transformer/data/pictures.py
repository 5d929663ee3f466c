"""Images as data: classes of images, images to reconstruct, or images to be made of others."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.json import fingerprint
from transformer.data.dataset import Batch, Batches, Examples, described, load_data, weighted
from transformer.data.images import DIGITS, load_image_pairs, load_images, sha256_of
from transformer.models.images import PatchConfig, VisionConfig
from transformer.objectives.classes import Classification
from transformer.objectives.objective import Objective
from transformer.objectives.pictures import Reconstruction
from transformer.runs.config import RunConfig
from transformer.runs.data import DataConfig


@dataclass(frozen=True, kw_only=True)
class ImageConfig(DataConfig):
    """Labelled images."""

    path: str | None = None
    """An .npz with train_images, train_labels, test_images and test_labels, or x_train and so on; None: scikit-learn's
    digits."""
    shift: float = 0.0
    """Largest random shift of a training image in each direction, in pixels; filled with zeros."""
    rotation: float = 0.0
    """Largest random rotation in each direction, in degrees."""
    scaling: float = 0.0
    """Largest share by which an image randomly grows or shrinks, in [0, 1)."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("shift", "rotation", "scaling"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"data.{name}: {getattr(self, name)} is negative or not a number")
        if self.scaling >= 1:
            raise ConfigError(f"data.scaling: {self.scaling} is not less than 1: an image would shrink to nothing")

    @property
    def distorts(self) -> bool:
        return self.shift > 0 or self.rotation > 0 or self.scaling > 0


@dataclass(frozen=True, kw_only=True)
class VisionRun(RunConfig):
    """A run that trains a vision transformer to classify images."""

    model: VisionConfig = VisionConfig()
    data: ImageConfig = ImageConfig()
    objective: Objective = Classification()


@dataclass(frozen=True, kw_only=True)
class ReconstructionRun(RunConfig):
    """A run that trains a transformer to fill in hidden patches."""

    model: PatchConfig = PatchConfig()
    data: ImageConfig = ImageConfig()
    objective: Objective = Reconstruction()


@dataclass(frozen=True, kw_only=True)
class ImagePairConfig(DataConfig):
    """Images, and images of the same shape that are to be made of them."""

    path: str
    """An .npz with train_images, train_targets, test_images and test_targets."""


@dataclass(frozen=True, kw_only=True)
class ImagePairRun(RunConfig):
    """A run that trains a transformer to make images of others."""

    model: PatchConfig = PatchConfig()
    data: ImagePairConfig = ImagePairConfig(path="pairs.npz")
    objective: Objective = Reconstruction(rate=0.0)


@dataclass(frozen=True, kw_only=True)
class Pictures(Examples):
    """Images and labels for training; the test images are the validation part."""

    description: ImageConfig = ImageConfig()
    num_classes: int

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the size of the images and the number of classes, unless it sets its own.

        Raises:
          ConfigError: its own do not fit the data.
        """
        config = _sized(described(config, self.description), self)
        if isinstance(config.model, VisionConfig):
            classes = config.model.num_classes or self.num_classes
            if classes < self.num_classes:
                raise ConfigError(f"model.num_classes: {classes}, but {self.num_classes} in {self.source}")
            config = config.replace({"model.num_classes": classes})
        return config

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        rows = super().train_batches(config, seed)
        return Distorted(rows, self.description, seed) if self.description.distorts else rows


@dataclass(frozen=True, kw_only=True)
class PicturePairs(Examples):
    """Images and their targets for training; the test images are the validation part."""

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the size of the images, unless it sets its own.

        Raises:
          ConfigError: its own does not fit the data.
        """
        return _sized(described(config, self.description), self)


def _sized(config: RunConfig, data: Examples) -> RunConfig:
    """The config with the size of the images, which its patches have to fill."""
    model, size = config.model, data.train["inputs"].shape[1:]
    check_kind(model, PatchConfig, "model of images")
    assert isinstance(model, PatchConfig)
    if model.vocab_size is not None:
        raise ConfigError(f"model.vocab_size: {model.vocab_size} would change nothing, as this model reads patches")
    if model.image_size is None:
        config = config.replace({"model.image_size": size})
    elif model.image_size != size:
        raise ConfigError(f"model.image_size: {model.image_size}, but the images of {data.source} are {size}")
    assert isinstance(config.model, PatchConfig)
    _ = config.model.grid
    return config


class Distorted:
    """Batches whose images are shifted, rotated and scaled at random, a pure function of seed and step."""

    def __init__(self, batches: Batches, config: ImageConfig, seed: int):
        self._batches, self._config, self._seed = batches, config, seed

    def __getitem__(self, step: int) -> Batch:
        batch, c = self._batches[step], self._config
        rng, count = np.random.default_rng([self._seed, step]), len(batch["inputs"])
        angles = np.radians(rng.uniform(-c.rotation, c.rotation, count))
        factors = 1 + rng.uniform(-c.scaling, c.scaling, count)
        turns = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]) / factors
        moves = rng.uniform(-c.shift, c.shift, (count, 2))
        return batch | {"inputs": affine(batch["inputs"], turns.transpose(2, 0, 1), moves)}


def affine(images_BYXC: np.ndarray, matrices: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Images whose pixel p is that of the old image at matrix · (p - centre) + centre + move.

    Interpolation is bilinear, with zeros outside of the image.

    Args:
      images_BYXC: float32.
      matrices: (B, 2, 2).
      moves: (B, 2) pixels.
    """
    height, width = images_BYXC.shape[1:3]
    centre = np.array([height - 1, width - 1]) / 2
    pixels = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1).reshape(-1, 2) - centre
    places = np.einsum("bij,pj->bpi", matrices, pixels) + centre + moves[:, None]
    corners = np.floor(places).astype(int)
    rest = (places - corners).astype(np.float32)
    padded = np.pad(images_BYXC, ((0, 0), (1, 1), (1, 1), (0, 0)))
    made = 0.0
    for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
        y = np.clip(corners[..., 0] + dy + 1, 0, height + 1)
        x = np.clip(corners[..., 1] + dx + 1, 0, width + 1)
        share = np.abs(1 - dy - rest[..., 0]) * np.abs(1 - dx - rest[..., 1])
        made = made + share[..., None] * padded[np.arange(len(padded))[:, None], y, x]
    return np.reshape(made, images_BYXC.shape).astype(np.float32)


@load_data.register
def load_pictures(config: ImageConfig, stored: str | Path | None = None) -> Pictures:
    """Read the images."""
    arrays = load_images(config.path)
    train_labels, test_labels = arrays["train_labels"], arrays["test_labels"]
    return Pictures(
        train={"inputs": arrays["train_images"], "labels": train_labels},
        validation=weighted({"inputs": arrays["test_images"], "labels": test_labels}),
        description=config,
        tokenizer=None,
        num_classes=1 + int(max(train_labels.max(), test_labels.max())),
        source=config.path or DIGITS,
        fingerprint=fingerprint([replace(config, path=None), sha256_of(arrays)]),
    )


@load_data.register
def load_picture_pairs(config: ImagePairConfig, stored: str | Path | None = None) -> PicturePairs:
    """Read the images."""
    arrays = load_image_pairs(config.path)
    weights = np.ones((len(arrays["test_images"]), 1), np.float32)
    return PicturePairs(
        train={"inputs": arrays["train_images"], "targets": arrays["train_targets"]},
        validation={"inputs": arrays["test_images"], "targets": arrays["test_targets"], "weights": weights},
        description=config,
        tokenizer=None,
        source=config.path,
        fingerprint=fingerprint([replace(config, path=""), sha256_of(arrays)]),
    )
