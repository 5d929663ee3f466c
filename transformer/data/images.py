"""Images of a file of arrays with labels or other images to be made of them, or scikit-learn's handwritten digits."""

import hashlib
import math
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.core.errors import ConfigError, nearest, text_of
from transformer.core.files import check_unpacked
from transformer.data.text import near

NPY = ".npy"
"""What the names of arrays end with in an .npz file."""
NAMES = ("train_images", "train_labels", "test_images", "test_labels")
KERAS_NAMES = ("x_train", "y_train", "x_test", "y_test")
"""The same arrays in the files that come with Keras."""
PAIR_NAMES = ("train_images", "train_targets", "test_images", "test_targets")
Arrays = dict[str, np.ndarray]
"""By name: images (N, H, W, C) float32, labels (N,) int32."""
DIGITS = "sklearn:digits"


def load_images(path: str | None) -> Arrays:
    """The images and labels of an .npz file or, without a path, the digits that come with scikit-learn.

    The file holds `train_images`, `train_labels`, `test_images` and `test_labels`, or the same as `x_train`,
    `y_train`, `x_test` and `y_test`. Images are (N, H, W) or (N, H, W, C): uint8 is divided by 255, floats stay as
    they are. The digits are 8×8×1 in [0, 1] in their original order, the first 898 for training and the last 899 for
    testing.

    Raises:
      ConfigError: the file or an array is missing or cannot be read; shapes do not fit each other; an
        image is not finite; a label is negative, not an integer, or only in testing; scikit-learn is missing.
    """
    source, arrays = (DIGITS, _digits()) if path is None else (path, _read(Path(path), NAMES, KERAS_NAMES))
    values = {name: (_images if "images" in name else _labels)(arrays[name], name, source) for name in NAMES}
    for part in ("train", "test"):
        _check_pair(values[f"{part}_images"], values[f"{part}_labels"], part, source)
    train, test = values["train_images"].shape[1:], values["test_images"].shape[1:]
    if train != test:
        raise ConfigError(f"data.path: {source}: train images are {train}, test images {test}")
    if unseen := sorted(set(values["test_labels"].tolist()) - set(values["train_labels"].tolist())):
        raise ConfigError(f"data.path: {source}: test_labels has {unseen[0]}, of which there is no image for training")
    _check_scale(arrays, [name for name in NAMES if "images" in name], source)
    return values


def load_image_pairs(path: str) -> Arrays:
    """The images of an .npz file, `train_images` and `test_images`, and those that are to be made of them, `…_targets`.

    Raises:
      ConfigError: as `load_images`; or a target has another shape than its image.
    """
    arrays = _read(Path(path), PAIR_NAMES)
    values = {name: _images(arrays[name], name, path) for name in PAIR_NAMES}
    for name in PAIR_NAMES[1:]:
        rows = "train" if name.startswith("train") else "test"
        wanted = (len(values[f"{rows}_images"]), *values["train_images"].shape[1:])
        if values[name].shape != wanted:
            raise ConfigError(f"data.path: {path}: {name} is {values[name].shape}, not {wanted}")
    _check_scale(arrays, PAIR_NAMES, path)
    return values


def _digits() -> dict[str, np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ConfigError("data.path: the digits need scikit-learn: pip install 'transformer[vision]'") from None
    digits: Any = load_digits()
    images, labels = digits.images / 16, digits.target
    return dict(zip(NAMES, (images[:898], labels[:898], images[898:], labels[898:]), strict=True))


def _read(path: Path, names: Sequence[str], *others: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of a file by these names, where it may call them by those of `others` instead."""
    if not path.exists():
        raise ConfigError(f"data.path: no file {path}{near(path)}")
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ConfigError(f"data.path: {path} is not an .npz file")
    try:
        with zipfile.ZipFile(path) as file:
            known = [name.removesuffix(NPY) for name in file.namelist()]
            found = next((each for each in (names, *others) if set(each) <= set(known)), names)
            if missing := [name for name in found if name not in known]:
                raise ConfigError(f"data.path: {path} has no array {missing[0]!r}{nearest(missing[0], known)}")
            check_unpacked(sum(file.getinfo(name + NPY).file_size for name in found), f"data.path: {path}")
            if unread := sorted({*known} - {*found}):
                said = f"data.path: {path}: read are {', '.join(found)}, and not {', '.join(unread)}"
                warnings.warn(said, stacklevel=4)
            return {own: _array(file, name + NPY) for own, name in zip(names, found, strict=True)}
    except ConfigError:
        raise
    except Exception as error:  # of a damaged file the libraries raise many kinds
        said = text_of(error) or type(error).__name__
        raise ConfigError(f"data.path: cannot read {path}: {said}") from None


def _array(file: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an .npz file, which is only as large as the file says that it is.

    Raises:
      ValueError: its header claims another size, or it holds objects.
    """
    with file.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(member)
        data = member.read()
    if dtype.hasobject:
        raise ValueError(f"{name} holds objects, which could run any code when read")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{name} has {len(data):,} bytes, and its header says {dtype}{list(shape)}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _images(images: np.ndarray, name: str, source: str) -> np.ndarray:
    """(N, H, W, C) float32."""
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise ConfigError(f"data.path: {source}: {name} is {images.shape}, not (N, H, W) or (N, H, W, C)")
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise ConfigError(f"data.path: {source}: {name} is {images.dtype}, not uint8 or float")
    scaled = images.astype(np.float32) / np.float32(255 if images.dtype == np.uint8 else 1)
    if len(wrong := np.argwhere(~np.isfinite(scaled))):
        raise ConfigError(f"data.path: {source}: {name} is not finite at {tuple(map(int, wrong[0]))}")
    return scaled if scaled.ndim == 4 else scaled[..., None]


def _check_scale(arrays: Mapping[str, np.ndarray], names: Sequence[str], source: str) -> None:
    """Bytes are divided by 255 and floats are not, so a file has one kind of them."""
    first = arrays[names[0]].dtype
    for name in names[1:]:
        if (arrays[name].dtype == np.uint8) != (first == np.uint8):
            raise ConfigError(
                f"data.path: {source}: {name} is {arrays[name].dtype} and {names[0]} {first}, of other scales"
            )


def _labels(labels: np.ndarray, name: str, source: str) -> np.ndarray:
    """(N,) int32."""
    if labels.dtype.kind not in "iu":
        raise ConfigError(f"data.path: {source}: {name} is {labels.dtype}, not integer")
    if len(wrong := np.argwhere(labels < 0)):
        place = tuple(map(int, wrong[0]))
        raise ConfigError(f"data.path: {source}: {name} is {labels[place]} at {place}, a negative label")
    if labels.size and labels.max() > np.iinfo(np.int32).max:
        raise ConfigError(f"data.path: {source}: {name} is up to {labels.max()}, and labels are numbers of classes")
    return labels.astype(np.int32)


def _check_pair(images: np.ndarray, labels: np.ndarray, part: str, source: str) -> None:
    if labels.shape != images.shape[:1]:
        raise ConfigError(f"data.path: {source}: {len(images)} {part} images, but {part}_labels is {labels.shape}")


def sha256_of(values: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in values:
        digest.update(f"{name} {values[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(values[name]).data)
    return digest.hexdigest()
