"""Image patches as tokens."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.embeddings.patches import PatchEmbedding, cut, join, resize_positions
from transformer.models.images import PatchConfig

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def images(count=2, size=(4, 6, 2), seed=0):
    return np.random.default_rng(seed).normal(size=(count, *size)).astype(np.float32)


def test_patches_are_cut_row_by_row():
    """The second patch is to the right of the first; joined again they are the images, bit for bit."""
    x = images()
    cut_up = cut(jnp.asarray(x), 2)
    assert cut_up.shape == (2, 6, 8)
    np.testing.assert_array_equal(cut_up[:, 1], x[:, 0:2, 2:4].reshape(2, -1))
    np.testing.assert_array_equal(cut_up[:, 3], x[:, 2:4, 0:2].reshape(2, -1))
    np.testing.assert_array_equal(join(cut_up, 2, 3), x)


@pytest.mark.parametrize("shape", [(4, 4, 1), (2, 16), (2, 4, 5, 1)])
def test_what_is_no_image(shape):
    with pytest.raises(ConfigError, match=r"^images: \(.*\), not \(B, height, width, channels\) with multiples of 2"):
        cut(jnp.zeros(shape), 2)


def test_bytes_are_no_pixels():
    with pytest.raises(ConfigError, match=r"^images: uint8 is given, and a model reads floats; divide bytes by 255$"):
        cut(jnp.zeros((1, 4, 4, 1), jnp.uint8), 2)


def test_a_patch_is_embedded_by_a_linear_map():
    """Pixels times a kernel plus a bias (Dosovitskiy et al. 2020, equation 1)."""
    layer = PatchEmbedding(PatchConfig(d_model=8, image_size=(4, 6, 2), patch_size=2), key=jax.random.key(0))
    layer.projection.bias[...] = layer.projection.bias[...] + 0.5
    pixels = images()[:, 2:4, 4:6].reshape(2, -1)
    expected = pixels @ np.asarray(layer.projection.kernel[...]) + 0.5
    chex.assert_trees_all_close(np.asarray(layer(jnp.asarray(images()))[:, 5]), expected, **CLOSE)


@pytest.mark.parametrize(("rows", "grid", "new"), [(6, (3, 3), (6, 6)), (13, (3, 4), (-1, 4)), (4, (0, 2), (2, 2))])
def test_grids_that_there_are_not(rows, grid, new):
    with pytest.raises(ConfigError, match=rf"^resize_positions: a table of {rows} rows, from \("):
        resize_positions(jnp.ones((rows, 4)), grid, new)


def test_a_list_is_no_image():
    with pytest.raises(ConfigError, match=r"^images: a list is given, not an array$"):
        cut([[1.0]], 1)  # pyright: ignore[reportArgumentType] wrong on purpose


@pytest.mark.parametrize("before", [0, 1])
def test_resized_positions(before):
    """The same grid gives the same table, what stands before is kept, and a linear slope stays one."""
    table = np.random.default_rng(0).normal(size=(before + 6, 4)).astype(np.float32)
    same = resize_positions(jnp.asarray(table), (2, 3), (2, 3))
    chex.assert_trees_all_close(np.asarray(same), table, **CLOSE)
    larger = resize_positions(jnp.asarray(table), (2, 3), (4, 6))
    assert larger.shape == (before + 24, 4)
    np.testing.assert_array_equal(larger[:before], table[:before])
    slope = np.broadcast_to(np.arange(4.0, dtype=np.float32)[None, :, None], (4, 4, 1)).reshape(16, 1)
    finer = np.asarray(resize_positions(jnp.asarray(slope), (4, 4), (4, 8))).reshape(4, 8)
    np.testing.assert_allclose(np.diff(finer, axis=1)[:, 1:-1], 0.5, rtol=1e-5)
    np.testing.assert_allclose(finer, finer[:1].repeat(4, 0), rtol=1e-5, atol=1e-6)
