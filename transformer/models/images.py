"""Transformers of image patches: images in, classes or images out."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.arrays import check_ids, has_numbers
from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError, nearest_divisor
from transformer.core.modules import Dense, Parameters, at, below
from transformer.core.parameters import Normal, Parameter
from transformer.embeddings.patches import PatchEmbedding, cut, join
from transformer.functional.masks import Tokens
from transformer.models.checks import refuse_tokens, required
from transformer.models.classifier import Classifier, ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.pattern import mapped
from transformer.models.transformer import Transformer
from transformer.positions.position import Position


@dataclass(frozen=True, kw_only=True)
class PatchConfig(ModelConfig):
    """A transformer of image patches (Dosovitskiy et al. 2020).

    `embedding.initializer` has the initial values of the map of patches, and of that back to them, as it has those of
    tables.
    """

    kind = "patches"
    sizes = (*ModelConfig.sizes, "patch_size")
    causal: bool = False
    image_size: tuple[int, ...] | None = None
    """Height, width and channels; None: those of the data."""
    patch_size: int = 4
    """Side of a square patch, in pixels."""

    def __post_init__(self):
        super().__post_init__()
        refuse_tokens(self, "patches")
        if self.image_size is not None and (len(self.image_size) != 3 or min(self.image_size) < 1):
            raise ConfigError(f"model.image_size: {self.image_size} is not (height, width, channels)")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches.

        Raises:
          ConfigError: the image size is not known, or the patches do not fill it.
        """
        height, width, last = required(self, "image_size")
        if height % self.patch_size or width % self.patch_size:
            if height <= 4 < last:
                raise ConfigError(f"model.image_size: {self.image_size}; channels come last, not first")
            raise ConfigError(
                f"model.patch_size: patches of {self.patch_size} do not fill images of {height} × {width}; the "
                f"nearest that do have {nearest_divisor(math.gcd(height, width), self.patch_size)}"
            )
        return height // self.patch_size, width // self.patch_size

    @property
    def patch_dim(self) -> int:
        """Number of values in a patch: pixels times channels."""
        return self.patch_size**2 * (self.image_size or (0, 0, 0))[2]

    def example_inputs(self):
        """The shape of one image."""
        _ = self.grid
        assert self.image_size is not None
        return (jax.ShapeDtypeStruct((1, *self.image_size), jnp.float32),)


@dataclass(frozen=True, kw_only=True)
class VisionConfig(PatchConfig, ClassifierConfig):
    """A vision transformer: patches, encoder, pooling, classes."""

    kind = ClassifierConfig.kind
    sizes = (*PatchConfig.sizes, "num_classes")


class VisionTransformer(Classifier):
    """Images (B, height, width, channels) in, logits of classes out (Dosovitskiy et al. 2020)."""

    def __init__(self, config: VisionConfig, *, key: jax.Array):
        check_kind(config, VisionConfig, "VisionTransformer")
        rows, columns = config.grid
        super().__init__(_placed(config, columns, config.extra_tokens), max_length=rows * columns, key=key)

    def make_embedding(self, config, *, key):
        return PatchEmbedding(config, key=key)


@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig(PatchConfig):
    """An encoder that sees only the shown patches of an image, and a decoder of all patches (MAE, He et al. 2021)."""

    sizes = (*PatchConfig.sizes, "num_decoder_layers")
    num_decoder_layers: int = 2
    """Blocks of the decoder, as wide as those of the encoder."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_decoder_layers % self.period or (self.distinct_layers or 1) > self.num_decoder_layers:
            raise ConfigError(
                f"model.num_decoder_layers: {self.num_decoder_layers} do not fit {self.pattern} and distinct_layers "
                f"{self.distinct_layers}"
            )


class ImageToImage(Transformer):
    """An encoder of patches and a linear map back to pixels (SimMIM, Xie et al. 2021)."""

    def __init__(self, config: PatchConfig, *, key: jax.Array):
        check_kind(config, PatchConfig, type(self).__name__)
        rows, columns = config.grid
        super().__init__(_placed(config, columns, 0), max_length=rows * columns, key=key)
        self.size, self.columns = config.patch_size, columns
        self.embedding = PatchEmbedding(config, key=at(key, "embedding"))
        self.hidden = Parameters({"token": Parameter((config.d_model,), Normal(0.02))}, key=at(key, "hidden"))
        self.head = Dense(
            config.d_model, config.patch_dim, initializer=config.embedding.initializer, bias=True, key=at(key, "head")
        )

    def __call__(self, images_BYXC: jax.Array, *, hidden_BH: jax.Array | None = None, key=None) -> jax.Array:
        """Images of the same shape, float32; `hidden_BH` are the numbers of patches that are not shown.

        Where the objective normalizes, their pixels are relative to mean and deviation of the true patches.
        """
        patches_BPX = self.predict_patches(images_BYXC, hidden_BH=hidden_BH, key=key)
        return join(patches_BPX, self.size, self.columns)

    def patches(self, images_BYXC: jax.Array) -> jax.Array:
        """The patches of images, (B, patches, patch_dim)."""
        return cut(images_BYXC, self.size)

    def predict_patches(
        self, images_BYXC: jax.Array, *, hidden_BH: jax.Array | None = None, key=None, with_penalty: bool = False
    ) -> Any:
        """Patches (B, patches, patch_dim), float32; with `with_penalty` also what the layers add to the loss."""
        x_BPD = self.embedding(images_BYXC)
        if hidden_BH is not None:
            _check_hidden(hidden_BH, *x_BPD.shape[:2])
            rows_B1, x32_BPD = jnp.arange(len(x_BPD))[:, None], x_BPD.astype(jnp.float32)
            x_BPD = x32_BPD.at[rows_B1, hidden_BH].set(self.hidden()["token"]).astype(x_BPD.dtype)
        x_BPD, penalty = self.transform(x_BPD, Tokens.first(x_BPD.shape[1]), key=key)
        patches_BPX = self.head(x_BPD * self.config.head.scale, jnp.float32)
        return (patches_BPX, penalty) if with_penalty else patches_BPX


def _check_hidden(hidden_BH: jax.Array, batch_size: int, patches: int) -> None:
    """Raise `ConfigError` where they are no rows of an image each, or, where no program is traced with them, no numbers
    of different patches."""
    check_ids(hidden_BH, patches, "hidden_BH: patch")
    if hidden_BH.ndim != 2 or len(hidden_BH) not in (1, batch_size):
        raise ConfigError(f"hidden_BH: {hidden_BH.shape}, not numbers of patches for each of {batch_size} images")
    if has_numbers(hidden_BH):
        numbers = np.sort(np.asarray(hidden_BH), 1)
        if (twice := np.argwhere(numbers[:, 1:] == numbers[:, :-1])).size:
            row, place = map(int, twice[0])
            raise ConfigError(f"hidden_BH: patch {numbers[row, place]} is there twice in row {row}")


def _placed(config: PatchConfig, columns: int, first: int) -> Any:
    """The config whose positions, those that alternate too, are of patches in so many columns."""

    def on_grid(position: Position | None) -> Position | None:
        return position and position.on_grid(columns, first=first)

    return replace(config, position=on_grid(config.position), pattern=mapped(config.pattern, {"position": on_grid}))


class MaskedAutoencoder(ImageToImage):
    """An encoder of the shown patches, and a decoder of all (MAE, He et al. 2021, figure 1).

    The decoder reads a linear map of the encoder's states, the trained vector in place of hidden patches, and
    positions of its own.
    """

    def __init__(self, config: AutoencoderConfig, *, key: jax.Array):
        check_kind(config, AutoencoderConfig, "MaskedAutoencoder")
        super().__init__(config, key=key)
        width = config.d_model
        self.bridge = Dense(width, width, initializer=config.initializer, bias=True, key=at(key, "bridge"))
        decoder = replace(self.config, num_layers=config.num_decoder_layers)
        self.decoder = Transformer(decoder, max_length=self.max_length, key=at(key, "decoder"))

    def predict_patches(self, images_BYXC, *, hidden_BH=None, key=None, with_penalty=False):
        x_BPD = self.embedding(images_BYXC)
        rows_B1, places_P = jnp.arange(len(x_BPD))[:, None], jnp.arange(x_BPD.shape[1])
        shown_BS = places_P[None].repeat(len(x_BPD), 0)
        if hidden_BH is not None:
            _check_hidden(hidden_BH, *x_BPD.shape[:2])
            if hidden_BH.shape[1] >= len(places_P):
                raise ConfigError(
                    f"images: all of {len(places_P)} patches are hidden, and the encoder reads the others"
                )
            hidden_BP = jnp.zeros(x_BPD.shape[:2], jnp.bool).at[rows_B1, hidden_BH].set(True)
            shown_BS = jnp.argsort(hidden_BP, stable=True)[:, : len(places_P) - hidden_BH.shape[1]]
        states_BSD, penalty = self.transform(x_BPD[rows_B1, shown_BS], Tokens.at(shown_BS), key=below(key, "encoder"))
        hidden_BPD, bridged_BSD = jnp.broadcast_to(self.hidden()["token"], x_BPD.shape), self.bridge(states_BSD)
        whole_BPD = hidden_BPD.at[rows_B1, shown_BS].set(bridged_BSD.astype(jnp.float32)).astype(x_BPD.dtype)
        with jax.named_scope("decoder"):
            whole_BPD, more = self.decoder.transform(whole_BPD, Tokens.at(places_P), key=below(key, "decoder"))
        patches_BPX = self.head(whole_BPD * self.config.head.scale, jnp.float32)
        return (patches_BPX, penalty + more) if with_penalty else patches_BPX
