"""Images in, images out: images are reconstructed from those of their patches that are shown."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from transformer.config.architectures import PatchConfig
from transformer.config.parameters import Normal, Parameter
from transformer.functional.masks import Tokens
from transformer.modules.dense import Dense
from transformer.modules.parameter import Parameters, at
from transformer.modules.patches import PatchEmbedding, cut, join
from transformer.modules.transformer import Transformer


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

    def __call__(self, images_BYXC: jax.Array, *, hidden_BP: jax.Array | None = None, key=None) -> jax.Array:
        """Images of the same shape, float32; `hidden_BP` is True for patches that are not shown."""
        patches_BPX = self.predict_patches(images_BYXC, hidden_BP=hidden_BP, key=key)
        return join(patches_BPX, self.size, self.columns)

    def patches(self, images_BYXC: jax.Array) -> jax.Array:
        """The patches of images, (B, patches, patch_dim)."""
        return cut(images_BYXC, self.size)

    def predict_patches(
        self, images_BYXC: jax.Array, *, hidden_BP: jax.Array | None = None, key=None, with_penalty: bool = False
    ) -> Any:
        """Patches (B, patches, patch_dim), float32; with `with_penalty` also what the layers add to the loss."""
        x_BPD = self.embedding(images_BYXC)
        if hidden_BP is not None:
            x_BPD = jnp.where(hidden_BP[..., None], self.hidden()["token"].astype(x_BPD.dtype), x_BPD)
        x_BPD, penalty = self.transform(x_BPD, Tokens.at(jnp.arange(x_BPD.shape[1])), key=key)
        patches_BPX = self.head(x_BPD * self.config.logit_scale).astype(jnp.float32)
        return (patches_BPX, penalty) if with_penalty else patches_BPX
