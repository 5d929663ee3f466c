"""Images in, images out: images are reconstructed from those of their patches that are shown."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from transformer.core.dense import Dense
from transformer.core.modules import Parameters, at, below
from transformer.core.names import scope
from transformer.core.parameters import Normal, Parameter
from transformer.functional.masks import Tokens
from transformer.models.architectures import AutoencoderConfig, PatchConfig
from transformer.models.patches import PatchEmbedding, cut, join
from transformer.models.transformer import Transformer


class ImageToImage(Transformer):
    """An encoder of patches and a linear map back to pixels (SimMIM, Xie et al. 2021)."""

    def __init__(self, config: PatchConfig, *, key: jax.Array):
        rows, columns = config.grid
        placed = dataclasses.replace(config, position=config.position.on_grid(columns, first=0))
        super().__init__(placed, max_length=rows * columns, key=key)
        self.size, self.columns = config.patch_size, columns
        self.embedding = PatchEmbedding(config, key=at(key, "embedding"))
        self.hidden = Parameters({"token": Parameter((config.d_model,), Normal(0.02))}, key=at(key, "hidden"))
        self.head = Dense(
            config.d_model, config.patch_dim, initializer=config.initializer, bias=True, key=at(key, "head")
        )

    def __call__(self, images_BYXC: jax.Array, *, hidden_BH: jax.Array | None = None, key=None) -> jax.Array:
        """Images of the same shape, float32; `hidden_BH` are the numbers of patches that are not shown."""
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
            token_D = self.hidden()["token"].astype(x_BPD.dtype)
            x_BPD = x_BPD.at[jnp.arange(len(x_BPD))[:, None], hidden_BH].set(token_D)
        x_BPD, penalty = self.transform(x_BPD, Tokens.at(jnp.arange(x_BPD.shape[1])), key=key)
        patches_BPX = self.head(x_BPD * self.config.logit_scale).astype(jnp.float32)
        return (patches_BPX, penalty) if with_penalty else patches_BPX


class MaskedAutoencoder(ImageToImage):
    """An encoder of the shown patches, and a decoder of all (MAE, He et al. 2021, figure 1).

    The decoder reads a linear map of the encoder's states, the trained vector in place of hidden patches, and
    positions of its own.
    """

    def __init__(self, config: AutoencoderConfig, *, key: jax.Array):
        super().__init__(config, key=key)
        width = config.d_model
        self.bridge = Dense(width, width, initializer=config.initializer, bias=True, key=at(key, "bridge"))
        decoder = dataclasses.replace(self.config, num_layers=config.num_decoder_layers)
        self.decoder = Transformer(decoder, max_length=self.max_length, key=at(key, "decoder"))

    def predict_patches(self, images_BYXC, *, hidden_BH=None, key=None, with_penalty=False):
        x_BPD = self.embedding(images_BYXC)
        rows_B1, places_P = jnp.arange(len(x_BPD))[:, None], jnp.arange(x_BPD.shape[1])
        shown_BS = places_P[None].repeat(len(x_BPD), 0)
        if hidden_BH is not None:
            hidden_BP = jnp.zeros(x_BPD.shape[:2], jnp.bool).at[rows_B1, hidden_BH].set(True)
            shown_BS = jnp.argsort(hidden_BP, stable=True)[:, : len(places_P) - hidden_BH.shape[1]]
        states_BSD, penalty = self.transform(x_BPD[rows_B1, shown_BS], Tokens.at(shown_BS), key=below(key, "encoder"))
        token_D = self.hidden()["token"].astype(x_BPD.dtype)
        whole_BPD = jnp.broadcast_to(token_D, x_BPD.shape).at[rows_B1, shown_BS].set(self.bridge(states_BSD))
        with scope("decoder"):
            whole_BPD, more = self.decoder.transform(whole_BPD, Tokens.at(places_P), key=below(key, "decoder"))
        patches_BPX = self.head(whole_BPD * self.config.logit_scale).astype(jnp.float32)
        return (patches_BPX, penalty + more) if with_penalty else patches_BPX
