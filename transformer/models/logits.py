"""Logits of tokens."""

import jax
from flax import nnx

from transformer.core.modules import Parameters, at
from transformer.core.parameters import ZEROS, Parameter
from transformer.models.config import ModelConfig
from transformer.models.embedding import Embedding


class Logits(nnx.Module):
    """score(readout(x) · tableᵀ + bias), with the table of an embedding."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config = config
        self.readout = Parameters(config.readout.parameters(config.d_model), key=at(key, "readout"))
        specs = {"bias": Parameter((config.vocab_size or 0,), ZEROS)} if config.output_bias else {}
        self.output = Parameters(specs, key=at(key, "output"))

    def __call__(self, x_BLD: jax.Array, table: Embedding) -> jax.Array:
        """Logits (B, L, V), float32."""
        logits_BLV = table.logits(self.config.readout(x_BLD, self.readout()))
        for bias_V in self.output().values():
            logits_BLV = logits_BLV + bias_V
        return self.config.logit_score(logits_BLV)
