"""Images as data: sizes and classes for the model, and images that are moved."""

import math

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data import pictures
from transformer.data.dataset import EVALUATION_BATCH, load_data, stack_batches
from transformer.data.pictures import ImageConfig, ImagePairConfig, ImagePairRun, ReconstructionRun, VisionRun, affine
from transformer.mixers.attention.attention import Attention
from transformer.models.images import AutoencoderConfig, PatchConfig, VisionConfig
from transformer.runs.config import Replica
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.schedules import Schedule
from transformer.training.loop import train
from transformer.training.stored import load_run


@pytest.fixture
def path(tmp_path):
    """Images with one bright pixel each, no two the same."""
    images = np.zeros((20, 6, 4), np.uint8)
    for i, image in enumerate(images):
        image[1 + i % 4, 1 + i // 4 % 2] = 255 - i
    labels = np.arange(20) % 3
    arrays = {"train_images": images[:14], "train_labels": labels[:14]}
    np.savez(tmp_path / "x.npz", **arrays, test_images=images[14:], test_labels=labels[14:])
    return str(tmp_path / "x.npz")


def vision(**model):
    return VisionRun(model=VisionConfig(**{"patch_size": 2} | model), batch_size=7)


def test_digits():
    """Without a file: scikit-learn's, for classes and for reconstruction."""
    pytest.importorskip("sklearn")
    data = load_data(ImageConfig())
    model = data.complete(VisionRun()).model
    assert (model.image_size, model.num_classes, model.grid) == ((8, 8, 1), 10, (2, 2))
    assert data.complete(ReconstructionRun()).model == PatchConfig(image_size=(8, 8, 1))
    batch = data.validation_batches(vision())
    assert batch["inputs"].shape[1:] == (EVALUATION_BATCH, 8, 8, 1)
    assert batch["weights"].sum() == 899
    assert data.reference() is None
    assert data.tokenizers == {}


def test_a_model_for_images(path):
    """Size and classes come from the data; what does not fit is refused with the number."""
    data = load_data(ImageConfig(path=path))
    model = data.complete(vision()).model
    assert (model.image_size, model.num_classes) == ((6, 4, 1), 3)
    assert data.complete(vision(num_classes=5, image_size=(6, 4, 1))).model.num_classes == 5
    with pytest.raises(ConfigError, match=r"model.image_size: \(4, 6, 1\), but the images .* are \(6, 4, 1\)"):
        data.complete(vision(image_size=(4, 6, 1)))
    with pytest.raises(ConfigError, match=r"model\.num_classes: 2, but 3 in"):
        data.complete(vision(num_classes=2))
    with pytest.raises(ConfigError, match=r"^model\.vocab_size: 5 would change nothing, as this model reads patches$"):
        data.complete(vision(vocab_size=5))
    with pytest.raises(ConfigError, match=r"patches of 4 do not fill images of 6 × 4; the nearest that do have 2"):
        data.complete(vision(patch_size=4))


def test_pairs_of_images(tmp_path):
    """Targets stand beside their images, in the order of the file; what does not fit is refused with its shape."""
    rng, path = np.random.default_rng(0), str(tmp_path / "pairs.npz")
    sizes = {"train_images": 9, "train_targets": 9, "test_images": 5, "test_targets": 5}
    arrays = {name: rng.random((size, 6, 4), np.float32) for name, size in sizes.items()}
    np.savez(path, **arrays)
    data = load_data(ImagePairConfig(path=path))
    config = data.complete(ImagePairRun(model=PatchConfig(patch_size=2), batch_size=3))
    assert (config.model.image_size, config.data.path) == ((6, 4, 1), path)
    batch = data.train_batches(config, 0)[0]
    for image, target in zip(batch["inputs"], batch["targets"], strict=True):
        (row,) = np.flatnonzero((arrays["train_images"][..., None] == image).all((1, 2, 3)))
        np.testing.assert_array_equal(target[..., 0], arrays["train_targets"][row])
    assert data.validation_batches(config)["weights"].sum() == 5
    np.savez(path, **arrays | {"test_targets": arrays["test_targets"][:, :5]})
    with pytest.raises(ConfigError, match=r"test_targets is \(5, 5, 4, 1\), not \(5, 6, 4, 1\)"):
        load_data(ImagePairConfig(path=path))
    np.savez(path, **{name: array for name, array in arrays.items() if name != "train_targets"})
    with pytest.raises(ConfigError, match="has no array 'train_targets'"):
        load_data(ImagePairConfig(path=path))


def test_an_image_is_learned_from_another(tmp_path):
    """Mirrored images: the error falls below that of the mean image, from which the images alone tell nothing."""
    rng, path = np.random.default_rng(0), str(tmp_path / "pairs.npz")
    images = rng.random((80, 4, 4, 1), np.float32)
    parts = {"train": images[:64], "test": images[64:]}
    arrays = {f"{name}_images": part for name, part in parts.items()}
    np.savez(path, **arrays, **{f"{name}_targets": part[:, :, ::-1] for name, part in parts.items()})
    data = load_data(ImagePairConfig(path=path))
    model = AutoencoderConfig(patch_size=2, num_layers=1, d_model=32, mixer=Attention(num_heads=2))
    optimizer = OptimizerConfig(learning_rate=1e-2, schedule=Schedule.parse("constant"))
    config = ImagePairRun(model=model, batch_size=16, steps=150, evaluate_every=150, optimizer=optimizer)
    outcome = train(config, [Replica()], data, tmp_path / "run")
    assert outcome.validation_loss[0] < 0.5 * images.var()


def test_the_fingerprint_changes_with_content(path, tmp_path):
    """Of the images, wherever the file is."""
    arrays = dict(np.load(path))
    np.savez(tmp_path / "copy.npz", **arrays)
    np.savez(tmp_path / "other.npz", **arrays | {"test_labels": (arrays["test_labels"] + 1) % 3})
    first, copy, other = (
        load_data(ImageConfig(path=str(p))).fingerprint for p in (path, tmp_path / "copy.npz", tmp_path / "other.npz")
    )
    assert first == copy != other
    assert load_data(ImageConfig(path=path, shift=1.0)).fingerprint != first  # a position in other images


@pytest.mark.parametrize("shift", [0, 1])
def test_batches_are_a_pure_function_of_seed_and_step(path, shift):
    """Any step at any time; other seeds have other orders."""
    data = load_data(ImageConfig(path=path, shift=float(shift)))
    one, again, other = (data.train_batches(vision(), seed) for seed in (0, 0, 1))
    forward = [one[step]["inputs"] for step in range(4)]
    for step in (3, 0, 3):
        np.testing.assert_array_equal(again[step]["inputs"], forward[step])
    assert any((other[step]["inputs"] != forward[step]).any() for step in range(4))
    assert stack_batches([one, other], 0, 2)["inputs"].shape == (2, 2, 7, 6, 4, 1)
    assert one[0]["inputs"].dtype == np.float32


def test_every_image_once_in_an_epoch(path):
    """With its own label."""
    data = load_data(ImageConfig(path=path))
    batches = data.train_batches(vision(), 0)
    images, labels = (np.concatenate([batches[step][name] for step in range(2)]) for name in ("inputs", "labels"))
    number = np.rint(255 - 255 * images.max((1, 2, 3))).astype(int)
    assert sorted(number) == list(range(14))
    np.testing.assert_array_equal(labels, number % 3)


def test_images_are_moved_and_nothing_else(path):
    """By up to the shift in both directions, each its own way and another way every epoch; labels stay with them."""
    batches, moves = load_data(ImageConfig(path=path, shift=1.0)).train_batches(vision(), 0), []
    rows, columns = np.indices((6, 4))
    for step in range(20):
        batch = batches[step]
        for image, label in zip(batch["inputs"][..., 0], batch["labels"], strict=True):
            number = round(255 - 255 * float(image.sum()))
            assert label == number % 3
            centre = [(image * i).sum() / image.sum() for i in (rows, columns)]
            moves.append([centre[0] - 1 - number % 4, centre[1] - 1 - number // 4 % 2])
    assert np.abs(moves).max() <= 1 + 1e-5
    np.testing.assert_allclose(np.quantile(moves, [0.1, 0.5, 0.9], axis=0), [[-0.8] * 2, [0] * 2, [0.8] * 2], atol=0.3)
    assert len(np.unique(np.round(moves, 3), axis=0)) > 130


def test_angles_and_factors(path, monkeypatch):
    """Rotations in degrees to both sides, and growth and shrinkage, up to what is asked for."""
    seen = []
    monkeypatch.setattr(pictures, "affine", lambda images, matrices, moves: seen.append((matrices, moves)) or images)
    batches = load_data(ImageConfig(path=path, rotation=30.0, scaling=0.2)).train_batches(vision(), 0)
    for step in range(40):
        batches[step]
    matrices, moves = (np.concatenate(part) for part in zip(*seen, strict=True))
    assert not moves.any()
    factors = np.linalg.det(matrices) ** -0.5
    angles = np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    for values, middle, width in ((factors, 1.0, 0.2), (angles, 0.0, 30.0)):
        assert np.abs(values - middle).max() <= width * (1 + 1e-6)
        assert values.min() < middle - 0.9 * width
        assert values.max() > middle + 0.9 * width


@pytest.mark.parametrize(("y", "x"), [(0, 0), (1, 0), (0, -2), (-1, 1), (7, 0)])
def test_whole_pixels_are_moved_exactly(y, x):
    """Zeros come in from outside, and no value changes."""
    images = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype(np.float32)
    moved = affine(images, np.tile(np.eye(2), (2, 1, 1)), np.array([[y, x]] * 2))
    expected = np.zeros_like(images)
    for row, column in np.ndindex(5, 4):
        if 0 <= row + y < 5 and 0 <= column + x < 4:
            expected[:, row, column] = images[:, row + y, column + x]
    np.testing.assert_array_equal(moved, expected)
    assert moved.dtype == np.float32


def test_a_quarter_turn():
    """A rotation by 90 degrees is `rot90`."""
    images = np.random.default_rng(0).normal(size=(1, 5, 5, 1)).astype(np.float32)
    turned = affine(images, np.array([[[0.0, -1.0], [1.0, 0.0]]]), np.zeros((1, 2)))
    options = [np.rot90(images, k, (1, 2)) for k in (1, 3)]
    assert min(np.abs(turned - option).max() for option in options) < 1e-5


def test_a_plane_stays_a_plane():
    """Bilinear values of a linear image are exact: pixel p has that of M(p - centre) + centre + move."""
    rng = np.random.default_rng(0)
    rows, columns = np.indices((7, 6))
    plane = (0.3 * rows - 0.2 * columns + 1).astype(np.float32)[None, ..., None]
    for _ in range(5):
        matrix, move = np.eye(2) + rng.normal(size=(2, 2)) / 5, rng.uniform(-1, 1, 2)
        made = affine(plane, matrix[None], move[None])[0, ..., 0]
        places = (np.stack([rows, columns], -1) - [3, 2.5]) @ matrix.T + [3, 2.5] + move
        inside = ((places >= 0) & (places <= [6, 5])).all(-1)
        assert inside.sum() > 15
        np.testing.assert_allclose(made[inside], (places @ [0.3, -0.2] + 1)[inside], rtol=1e-5, atol=1e-5)


def test_images_of_the_evaluation_stay(path):
    """The test images in order, once, unmoved; what fills the batch has no weight."""
    plain, moved = (load_data(ImageConfig(path=path, shift=float(s))).validation_batches(vision()) for s in (0, 1))
    assert plain["inputs"].shape == (1, EVALUATION_BATCH, 6, 4, 1)
    for name in plain:
        np.testing.assert_array_equal(plain[name], moved[name])
    real = plain["weights"][..., 0] == 1
    assert real.sum() == 6
    np.testing.assert_array_equal(plain["labels"][real], np.arange(14, 20) % 3)
    assert not plain["inputs"][~real].any()


@pytest.mark.parametrize("name", ["shift", "rotation", "scaling"])
def test_negative_distortions(name):
    """Are refused."""
    for wrong in (-1.0, math.inf):
        with pytest.raises(ConfigError, match=rf"data.{name}: {wrong} is negative or not a number"):
            ImageConfig(**{name: wrong})


def test_nothing_shrinks_by_all_of_itself():
    """A share of 1 would divide by zero, a larger one would mirror."""
    with pytest.raises(ConfigError, match=r"data\.scaling"):
        ImageConfig(scaling=1.0)


def test_images_by_class(path, tmp_path):
    """Those of a row of the class are given that of a column; accuracy counts the diagonal. Texts are none."""
    config = vision(num_layers=1, d_model=8, mixer=Attention(num_heads=2)).replace({"data.path": path, "steps": 2})
    outcome = train(config, [Replica(seed=0)], load_data(config.data), tmp_path / "run")
    run = load_run(tmp_path / "run")
    counts, images = run.confusion(), run.data.validation
    given = run.apply(run.params(), images["inputs"]).argmax(-1)
    expected = np.zeros((3, 3))
    np.add.at(expected, (images["labels"], given), 1)
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(counts, outcome.confusion())
    assert counts.trace() / counts.sum() == pytest.approx(run.accuracy[0])
    with pytest.raises(ConfigError, match=r"^classify: .* holds no classifier of texts$"):
        run.classify("a text")
