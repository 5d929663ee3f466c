"""Image patches as tokens."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import nnx

from transformer.core.errors import ConfigError
from transformer.core.modules import Dense, at

if TYPE_CHECKING:
    from transformer.models.images import PatchConfig


def cut(images_BYXC: jax.Array, size: int) -> jax.Array:
    """Cuts images (B, height, width, channels) into patches (B, patches, patch_dim), row by row.

    Raises:
      ConfigError: they are no such images, or integers, or have no whole number of patches.
    """
    if not isinstance(images_BYXC, jax.Array | np.ndarray):
        raise ConfigError(f"images: a {type(images_BYXC).__name__} is given, not an array")
    if not jnp.issubdtype(images_BYXC.dtype, jnp.floating):
        raise ConfigError(f"images: {images_BYXC.dtype} is given, and a model reads floats; divide bytes by 255")
    if images_BYXC.ndim != 4 or images_BYXC.shape[1] % size or images_BYXC.shape[2] % size:
        sizes = f"(B, height, width, channels) with multiples of {size} as height and width"
        raise ConfigError(f"images: {images_BYXC.shape}, not {sizes}")
    return rearrange(images_BYXC, "b (r y) (c x) k -> b (r c) (y x k)", y=size, x=size)


def join(patches_BPX: jax.Array, size: int, columns: int) -> jax.Array:
    """The inverse of `cut`, for images with `columns` patches in a row."""
    return rearrange(patches_BPX, "b (r c) (y x k) -> b (r y) (c x) k", c=columns, y=size, x=size)


class PatchEmbedding(nnx.Module):
    """A linear map of the pixels of each patch (Dosovitskiy et al. 2020, equation 1)."""

    def __init__(self, config: "PatchConfig", *, key: jax.Array):
        self.size, self.image_size, self.dtype = config.patch_size, config.image_size, jnp.dtype(config.dtype)
        how: Any = {"initializer": config.embedding.initializer, "gain": config.embedding_gain, "bias": True}
        self.projection = Dense(config.patch_dim, config.d_model, **how, key=at(key, "projection"))

    def __call__(self, images_BYXC: jax.Array) -> jax.Array:
        """Embedded patches (B, patches, D); raises `ConfigError` where images are not of the model's size."""
        patches_BPX = cut(images_BYXC, self.size)
        if images_BYXC.shape[1:] != self.image_size:
            raise ConfigError(
                f"images: {images_BYXC.shape[1:]} for model.image_size {self.image_size}; for another size of images, "
                "resize_positions makes positions"
            )
        return self.projection(patches_BPX.astype(self.dtype))


def resize_positions(table_PD: jax.Array, grid: tuple[int, int], new_grid: tuple[int, int]) -> jax.Array:
    """Learned positions of a grid of patches, interpolated to another grid (Dosovitskiy et al. 2020, section 3.2).

    Rows of the table before those of the patches, such as that of a class token, are kept. The two grids have the same
    borders, where in the authors' code they have the same outermost patches.

    Args:
      table_PD: (before + rows · columns, D).
      grid: rows and columns of patches of the table.
      new_grid: rows and columns of the result, (before + new rows · new columns, D).

    Raises:
      ConfigError: a grid has no patches, or the table fewer than it.
    """
    before = table_PD.shape[0] - grid[0] * grid[1]
    if before < 0 or min(*grid, *new_grid) < 1:
        raise ConfigError(f"resize_positions: a table of {len(table_PD)} rows, from {grid} to {new_grid} patches")
    image = rearrange(table_PD[before:], "(r c) d -> r c d", r=grid[0])
    resized = jax.image.resize(image, (*new_grid, table_PD.shape[1]), "bilinear")
    return jnp.concatenate([table_PD[:before], rearrange(resized, "r c d -> (r c) d")])
