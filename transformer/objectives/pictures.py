"""The objective of a model that completes images."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer.core.errors import ConfigError
from transformer.models.images import PatchConfig
from transformer.norms.norm import layer_norm
from transformer.objectives.objective import Objective, Sums

EPS = 1e-6
"""What the variance of a patch has added to it."""


def _shrinks(patches_BPX: jax.Array) -> float:
    """The factor of normalized pixels: the variance of the authors' code is over n - 1."""
    return math.sqrt(1 - 1 / patches_BPX.shape[-1])


@dataclass(frozen=True)
class Reconstruction(Objective):
    """Squared error of the pixels of hidden patches, or of all with rate 0 (MAE, He et al. 2021).

    SimMIM (Xie et al. 2021) takes absolute errors.

    The batch holds `inputs` (B, height, width, channels), and `targets` of the same shape where another image is to be
    made of them. Without a key the same patches are always hidden.
    """

    name = "reconstruction"
    rate: float = 0.5
    """Share of patches that are hidden, rounded to a number of them, of which there is one at least, unless it is 0."""
    normalized: bool = False
    """Whether pixels are predicted relative to mean and deviation of their patch (He et al. 2021, section 3); `pixels`
    undoes it."""
    causal = False
    needs = PatchConfig

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"reconstruction.rate: {self.rate} is not in [0, 1]")

    def hide(self, batch_size: int, num_patches: int, key: jax.Array | None) -> jax.Array:
        """The numbers of the hidden patches of each image, (B, hidden) int32."""
        choice = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        order_BP = jnp.argsort(jax.random.uniform(choice, (batch_size, num_patches), jnp.float32), -1)
        return order_BP[:, : max(round(self.rate * num_patches), 1 if self.rate else 0)]

    def pixels(self, predicted_BPX: jax.Array, patches_BPX: jax.Array) -> jax.Array:
        """The pixels (B, patches, patch_dim) that are predicted of these patches, by their mean and deviation."""
        if not self.normalized:
            return predicted_BPX
        mean_BP1, variance_BP1 = (of(patches_BPX, -1, keepdims=True) for of in (jnp.mean, jnp.var))
        return predicted_BPX * jnp.sqrt(variance_BP1 + EPS) / _shrinks(patches_BPX) + mean_BP1

    def labels(self, batch):
        return batch["inputs"].reshape(*batch["inputs"].shape[:-3], -1)

    def weights(self, batch):
        return batch["weights"] if "weights" in batch else jnp.ones((len(batch["inputs"]), 1), jnp.float32)

    def limits(self, model):
        return {}

    def chance(self, model):
        return math.inf

    def __call__(self, apply, params, batch, key):
        images = batch["inputs"]
        targets = batch.get("targets", images)
        if targets.shape != images.shape:
            raise ConfigError(f"reconstruction: targets {targets.shape} for images {images.shape}")
        targets_BPX = apply(params, targets, method="patches")
        if self.normalized:
            targets_BPX = layer_norm(targets_BPX, eps=EPS) * _shrinks(targets_BPX)
        hidden_BH = self.hide(len(images), targets_BPX.shape[1], key)
        more = {"hidden_BH": hidden_BH, "key": key, "method": "predict_patches"}
        predicted_BPX, penalty = self.answer(apply, params, images, **more)
        errors_BP = jnp.square(predicted_BPX - targets_BPX).mean(-1) + penalty
        chosen_BP = jnp.full(errors_BP.shape, 0.0 if hidden_BH.size else 1.0, jnp.float32)
        chosen_BP = chosen_BP.at[jnp.arange(len(images))[:, None], hidden_BH].set(1.0)
        weights_BP = chosen_BP * self.weights(batch)
        return Sums.of(errors_BP, weights_BP, jnp.zeros_like(errors_BP))
