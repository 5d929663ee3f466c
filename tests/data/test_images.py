"""Images: digits, files, and what is wrong with a file in one line."""

import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.dataset import load_data
from transformer.data.images import load_images, sha256_of
from transformer.data.pictures import ImageConfig


def arrays(**changes):
    """A valid file's arrays, with some replaced; None leaves one out."""
    rng = np.random.default_rng(0)
    valid = {
        "train_images": rng.integers(0, 256, (6, 4, 3), np.uint8),
        "train_labels": np.array([0, 1, 2, 3, 4, 0]),
        "test_images": rng.integers(0, 256, (2, 4, 3), np.uint8),
        "test_labels": np.array([4, 0], np.uint8),
    }
    return {name: a for name, a in (valid | changes).items() if a is not None}


def saved(path, **changes):
    np.savez(path, **arrays(**changes))
    return str(path)


def test_digits():
    pytest.importorskip("sklearn")
    digits = load_images(None)
    assert digits["train_images"].shape == (898, 8, 8, 1)
    assert digits["test_images"].shape == (899, 8, 8, 1)
    assert (digits["train_images"].dtype, digits["train_labels"].dtype) == (np.float32, np.int32)
    assert (digits["train_images"].min(), digits["train_images"].max()) == (0, 1)
    assert digits["train_labels"][:10].tolist() == list(range(10))
    pictures = load_data(ImageConfig())
    assert (pictures.num_classes, pictures.source) == (10, "sklearn:digits")
    assert sha256_of(digits) == sha256_of(load_images(None))


def test_scikit_learn_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer\[vision\]'"):
        load_images(None)


def test_a_file_of_bytes_is_scaled(tmp_path):
    path = saved(tmp_path / "images.npz")
    images = load_images(path)
    assert images["train_images"].shape == (6, 4, 3, 1)
    assert images["train_images"].dtype == np.float32
    np.testing.assert_allclose(images["train_images"][..., 0], arrays()["train_images"] / 255, rtol=1e-6)
    assert images["test_labels"].tolist() == [4, 0]
    pictures = load_data(ImageConfig(path=path))
    assert (pictures.num_classes, pictures.source) == (5, path)


def test_a_file_with_the_names_of_keras(tmp_path):
    own = arrays()
    keras = {"x_train": own["train_images"], "y_train": own["train_labels"]}
    keras |= {"x_test": own["test_images"], "y_test": own["test_labels"]}
    np.savez(tmp_path / "mnist.npz", **keras)
    images = load_images(str(tmp_path / "mnist.npz"))
    assert sha256_of(images) == sha256_of(load_images(saved(tmp_path / "images.npz")))


def test_arrays_that_are_not_read_are_named(tmp_path):
    path = saved(tmp_path / "more.npz", val_images=np.zeros((1, 4, 3), np.uint8), x_train=np.zeros(1))
    with pytest.warns(UserWarning, match=r": read are train_images, .*, test_labels, and not val_images, x_train$"):
        assert len(load_images(path)["train_images"]) == 6


def test_floats_and_channels_stay(tmp_path):
    shape = {part: np.random.default_rng(1).normal(size=(n, 4, 3, 2)) for part, n in (("train", 6), ("test", 2))}
    images = load_images(saved(tmp_path / "x.npz", train_images=shape["train"], test_images=shape["test"]))
    np.testing.assert_array_equal(images["train_images"], shape["train"].astype(np.float32))


def test_the_fingerprint_is_of_values_and_shapes(tmp_path):
    train, test = arrays()["train_images"], arrays()["test_images"]
    variants = [
        {},
        {"train_images": train ^ 1},
        {"train_labels": np.array([0, 4, 2, 3, 4, 0])},
        {"test_labels": np.zeros(2, int)},
        {"train_images": train.reshape(6, 3, 4), "test_images": test.reshape(2, 3, 4)},
    ]
    prints = [sha256_of(load_images(saved(tmp_path / f"{i}.npz", **v))) for i, v in enumerate(variants)]
    assert len(set(prints)) == len(variants)
    assert sha256_of(load_images(saved(tmp_path / "again.npz"))) == prints[0]


WRONG = [
    ({"test_labels": None, "test_lables": np.zeros(2, int)}, "no array 'test_labels'; did you mean 'test_lables'"),
    ({"train_labels": np.zeros(5, int)}, r"6 train images, but train_labels is \(5,\)"),
    ({"train_labels": np.zeros((6, 1), int)}, r"6 train images, but train_labels is \(6, 1\)"),
    ({"train_labels": np.zeros(6)}, "train_labels is float64, not integer"),
    ({"test_labels": np.array([0, 5])}, "test_labels has 5, of which there is no image for training"),
    ({"test_labels": np.array([0, -3])}, r"test_labels is -3 at \(1,\), a negative label"),
    ({"test_labels": np.array([0, 2**33])}, "test_labels is up to 8589934592, and labels are numbers of classes"),
    ({"train_images": np.full((6, 4, 3), np.nan)}, r"train_images is not finite at \(0, 0, 0\)"),
    ({"train_images": np.zeros((6, 4, 3), int)}, "train_images is int64, not uint8 or float"),
    ({"train_images": np.zeros((6, 12))}, r"train_images is \(6, 12\), not \(N, H, W\)"),
    ({"train_images": np.zeros((0, 4, 3)), "train_labels": np.zeros(0, int)}, r"train_images is \(0, 4, 3\), not"),
    ({"train_images": np.zeros((6, 5, 3))}, r"train images are \(5, 3, 1\), test images \(4, 3, 1\)"),
    ({"train_images": np.zeros((6, 4, 3))}, "test_images is uint8 and train_images float64, of other scales"),
    ({"train_labels": np.array([None] * 6)}, "cannot read .*holds objects"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_arrays_are_one_line(tmp_path, changes, message):
    path = saved(tmp_path / "images.npz", **changes)
    with pytest.raises(ConfigError, match=message) as caught:
        load_images(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_files_are_one_line(tmp_path):
    saved(tmp_path / "mnist.npz")
    with pytest.raises(ConfigError, match=r"no file .*mnits\.npz; did you mean .*mnist\.npz\?"):
        load_images(str(tmp_path / "mnits.npz"))
    (tmp_path / "text.npz").write_text("not a zip")
    (tmp_path / "empty.npz").write_bytes(b"")
    content = (tmp_path / "mnist.npz").read_bytes()
    (tmp_path / "damaged.npz").write_bytes(content[:150] + b"????" + content[154:])
    with pytest.raises(ConfigError, match=r"cannot read .*damaged\.npz"):
        load_images(str(tmp_path / "damaged.npz"))
    for path in (tmp_path / "text.npz", tmp_path / "empty.npz", tmp_path):
        with pytest.raises(ConfigError, match=r"is not an \.npz file"):
            load_images(str(path))


def test_a_header_that_claims_more_than_there_is(tmp_path):
    """No memory is taken for it."""
    saved(tmp_path / "images.npz")
    header = io.BytesIO()
    claimed = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**7)}
    np.lib.format.write_array_header_1_0(header, claimed)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as file:
        for name in arrays():
            file.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(ConfigError, match=r"train_images\.npy has 0 bytes, and its header says float32\[1000000, 1"):
        load_images(str(tmp_path / "huge.npz"))


def test_no_more_is_unpacked_than_is_allowed(tmp_path, monkeypatch):
    path = saved(tmp_path / "images.npz")
    monkeypatch.setenv("TRANSFORMER_UNPACKED", "500")
    with pytest.raises(ConfigError, match=r"images\.npz becomes more than 500 bytes; TRANSFORMER_UNPACKED=BYTES"):
        load_images(path)


def test_an_array_in_the_order_of_fortran(tmp_path):
    path = saved(tmp_path / "images.npz", train_images=np.asfortranarray(arrays()["train_images"]))
    np.testing.assert_array_equal(
        load_images(path)["train_images"], load_images(saved(tmp_path / "c.npz"))["train_images"]
    )


def test_mnist():
    data = os.environ.get("TRANSFORMER_DATA")
    if data is None:
        pytest.skip("TRANSFORMER_DATA is not set: there is no MNIST here")
    mnist = load_images(str(Path(data) / "mnist" / "mnist.npz"))
    assert mnist["train_images"].shape == (60_000, 28, 28, 1)
    assert mnist["test_images"].shape == (10_000, 28, 28, 1)
    assert (mnist["train_images"].min(), mnist["train_images"].max()) == (0, 1)
    assert mnist["train_labels"].max() == 9
