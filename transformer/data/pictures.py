"""Images as data: classes of images, or images to reconstruct."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.config.model import PatchConfig, VisionConfig
from transformer.config.objectives import Classification, Objective, Reconstruction
from transformer.config.run import DataConfig, RunConfig
from transformer.config.variant import ConfigError
from transformer.data.dataset import Batch, Batches, Rows, load_data, whole
from transformer.data.images import Images, load_images
from transformer.data.tokenizers import Tokenizer

EVALUATION_BATCH = 128
"""Images per device."""


@dataclass(frozen=True, kw_only=True)
class ImageConfig(DataConfig):
    """Labelled images."""

    path: str | None = None
    """An .npz with train_images, train_labels, test_images and test_labels; none: scikit-learn's digits."""
    shift: int = 0
    """Pixels a training image may be moved in each direction, zeros behind it."""

    def __post_init__(self):
        if self.shift < 0:
            raise ConfigError(f"data.shift: {self.shift} is negative")


@dataclass(frozen=True, kw_only=True)
class VisionRun(RunConfig):
    """A run that trains a vision transformer to name the class of an image."""

    model: VisionConfig = VisionConfig()
    data: ImageConfig = ImageConfig()
    objective: Objective = Classification()


@dataclass(frozen=True, kw_only=True)
class ReconstructionRun(RunConfig):
    """A run that trains a transformer to fill in hidden patches."""

    model: PatchConfig = PatchConfig()
    data: ImageConfig = ImageConfig()
    objective: Objective = Reconstruction()


@dataclass(frozen=True)
class Pictures:
    """Images for training and, as the validation part, for testing."""

    images: Images
    shift: int

    @property
    def source(self) -> str:
        return self.images.source

    @property
    def fingerprint(self) -> str:
        return self.images.fingerprint

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        return {}

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the size of the images and the number of classes, where it leaves them open.

        Raises:
          ConfigError: they do not fit.
        """
        model, size = config.model, self.images.train_images.shape[1:]
        assert isinstance(model, PatchConfig)
        if model.image_size is None:
            config = config.replace({"model.image_size": size})
        elif model.image_size != size:
            raise ConfigError(f"model.image_size: {model.image_size}, but the images of {self.source} are {size}")
        if isinstance(model, VisionConfig):
            classes = model.num_classes or self.images.num_classes
            if classes < self.images.num_classes:
                raise ConfigError(f"model.num_classes: {classes}, but {self.images.num_classes} in {self.source}")
            config = config.replace({"model.num_classes": classes})
        assert isinstance(config.model, PatchConfig)
        _ = config.model.grid
        return config

    def train_batches(self, config: RunConfig, seed: int) -> Batches:
        rows = Rows({"inputs": self.images.train_images, "labels": self.images.train_labels}, config.batch_size, seed)
        return Shifted(rows, self.shift, seed) if self.shift else rows

    def validation_batches(self, config: RunConfig, multiple: int) -> Batch:
        weights = np.ones((len(self.images.test_labels), 1), np.float32)
        arrays = {"inputs": self.images.test_images, "labels": self.images.test_labels, "weights": weights}
        return whole(arrays, EVALUATION_BATCH * multiple)

    def reference(self) -> None:
        return None


class Shifted:
    """Batches whose images are moved by a few random pixels."""

    def __init__(self, batches: Batches, shift: int, seed: int):
        self._batches, self._shift, self._seed = batches, shift, seed

    def __getitem__(self, step: int) -> Batch:
        batch, s = self._batches[step], self._shift
        images = np.pad(batch["inputs"], ((0, 0), (s, s), (s, s), (0, 0)))
        height, width = batch["inputs"].shape[1:3]
        corners = np.random.default_rng([self._seed, step]).integers(0, 2 * s + 1, (len(images), 2))
        moved = [i[y : y + height, x : x + width] for i, (y, x) in zip(images, corners, strict=True)]
        return batch | {"inputs": np.stack(moved)}


@load_data.register
def load_pictures(config: ImageConfig, stored: Path | None = None) -> Pictures:
    """Read the images."""
    return Pictures(load_images(config.path), config.shift)
