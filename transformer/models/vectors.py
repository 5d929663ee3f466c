"""A transformer of sequences of vectors: vectors of numbers in, numbers for each out."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Dense, at
from transformer.functional.masks import Tokens
from transformer.models.checks import refuse_tokens, required
from transformer.models.config import ModelConfig
from transformer.models.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class VectorConfig(ModelConfig):
    """A transformer of vectors: a language model with linear layers in place of its two tables (Garg et al. 2022).

    `embedding.initializer` has the initial values of both, as it has those of tables.
    """

    kind = "vectors"
    sizes = (*ModelConfig.sizes, "features", "outputs")
    features: int | None = None
    """Numbers in a vector of the input; None: as many as the data has."""
    outputs: int | None = None
    """Numbers that are predicted at each vector; None: as many as the data has."""

    def __post_init__(self):
        super().__post_init__()
        refuse_tokens(self, "vectors")

    def example_inputs(self):
        """The shape of one sequence of full length."""
        return (jax.ShapeDtypeStruct((1, self.max_length, required(self, "features")), jnp.float32),)


class VectorModel(Transformer):
    """Vectors (B, L, features) in, numbers (B, L, outputs) out, each from the vectors that its place may see."""

    def __init__(self, config: VectorConfig, *, key: jax.Array):
        check_kind(config, VectorConfig, "VectorModel")
        super().__init__(config, key=key)
        self.dtype = jnp.dtype(config.dtype)
        features, outputs, width = required(config, "features"), required(config, "outputs"), config.d_model
        how: dict[str, Any] = {"initializer": config.embedding.initializer, "bias": True}
        self.embedding = Dense(features, width, **how, gain=config.embedding_gain, key=at(key, "embedding"))
        self.head = Dense(width, outputs, **how, key=at(key, "head"))

    def __call__(self, vectors_BLF: jax.Array, *, key: jax.Array | None = None, with_penalty: bool = False) -> Any:
        """Numbers (B, L, outputs), float32; with `with_penalty` also what the layers add to the loss, a scalar.

        Args:
          vectors_BLF: (B, L, features), any float dtype.
          key: turns dropout on.
          with_penalty: whether to also return the penalty.

        Raises:
          ConfigError: they are no such floats, or more than `max_length`, and the position does not extrapolate.
        """
        features = required(self.config, "features")
        if vectors_BLF.ndim != 3 or vectors_BLF.shape[2] != features:
            raise ConfigError(f"vectors: {vectors_BLF.shape}, not (B, L, {features})")
        if not jnp.issubdtype(vectors_BLF.dtype, jnp.floating):
            raise ConfigError(f"vectors: {vectors_BLF.dtype} is given, and a model reads floats")
        x_BLD = self.embedding(vectors_BLF.astype(self.dtype))
        x_BLD, penalty = self.transform(x_BLD, Tokens.first(x_BLD.shape[1]), key=key)
        outputs_BLO = self.head(x_BLD * self.config.head.scale, jnp.float32)
        return (outputs_BLO, penalty) if with_penalty else outputs_BLO
