"""Encoders with classes as output: of a text, or of each of its tokens."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.modules import Dense, Parameters, at
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import EmbeddingLayer
from transformer.functional.masks import Tokens
from transformer.models.checks import refuse_token_logits, refuse_token_values, required
from transformer.models.config import ModelConfig
from transformer.models.pooling import MeanPooling, Pooling
from transformer.models.registers import behind, check_registers, register_parameters
from transformer.models.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ModelConfig):
    """An encoder, a pooling of its tokens (or a class for each token), and a linear layer to the classes."""

    kind = "classes"
    sizes = (*ModelConfig.sizes, "num_classes")
    causal: bool = False
    num_classes: int | None = None
    """Number of classes; None: as many as the data has."""
    registers: int = 0
    """Trained vectors before the tokens, whose outputs are ignored (Burtsev et al. 2020; Darcet et al. 2023)."""
    pooling: Pooling = MeanPooling()
    """How the tokens of a sequence become one vector; `per_token`: each token has its own class."""

    @property
    def extra_tokens(self) -> int:
        """Trained vectors before the tokens: the registers, and the token of the pooling where it has one."""
        return self.registers + self.pooling.extra_token

    def __post_init__(self):
        super().__post_init__()
        refuse_token_values(self)
        check_registers(self)
        self.pooling.check(self.d_model)
        if self.causal and self.registers:
            raise ConfigError("model.registers: they stand before all tokens and in a causal model see none of them")
        if self.causal and self.pooling.reads_first:
            raise ConfigError(
                f"model.pooling: the first token, which {self.pooling} reads, sees no other in a causal model; use mean"
            )
        refuse_token_logits(self, "and this model has those of classes")


class Classifier(Transformer):
    """Tokens in, logits of classes out."""

    def __init__(self, config: ClassifierConfig, *, max_length: int | None = None, key: jax.Array):
        check_kind(config, ClassifierConfig, "Classifier")
        num_classes = required(config, "num_classes")
        length = config.max_length if max_length is None else max_length
        super().__init__(config, max_length=length + config.extra_tokens, key=key)
        self.pooling, self.registers, self.num_extra = config.pooling, config.registers, config.extra_tokens
        self.pooling_params = Parameters(config.pooling.parameters(config.d_model), key=at(key, "pooling"))
        self.extra = Parameters(register_parameters(config), key=at(key, "extra"))
        self.embedding = self.make_embedding(config, key=at(key, "embedding"))
        self.head = Dense(config.d_model, num_classes, initializer=Normal(0.02), bias=True, key=at(key, "head"))

    def make_embedding(self, config, *, key: jax.Array) -> nnx.Module:
        """The embedding of the inputs, (B, …) to (B, L, D)."""
        return EmbeddingLayer(config.vocab_size, config, with_types=True, gain=config.embedding_gain, key=key)

    def __call__(
        self,
        inputs: jax.Array,
        *,
        valid_BL: jax.Array | None = None,
        types_BL: jax.Array | None = None,
        key: jax.Array | None = None,
        with_penalty: bool = False,
    ):
        """Logits (B, classes), float32; without pooling (B, L, classes).

        Args:
          inputs: tokens (B, L), integers in [0, V).
          valid_BL: False for padding, which is ignored.
          types_BL: the type of each token, in a model with `embedding.types`; None: 0.
          key: turns dropout on.
          with_penalty: whether to also return what the layers add to the loss, a scalar.
        """
        types = {} if types_BL is None else {"types_BL": types_BL}
        x_BLD = self.embedding(inputs, **types)  # pyright: ignore[reportCallIssue]
        params = self.pooling_params()
        if self.num_extra:
            extra = [*self.extra().values(), *([params["token"][None]] if self.pooling.extra_token else [])]
            x_BLD, valid_BL = behind(jnp.concatenate(extra), x_BLD, valid_BL)
        tokens = Tokens.first(x_BLD.shape[1], valid=valid_BL)
        x_BLD, penalty = self.transform(x_BLD, tokens, key=key)
        read_BLD = x_BLD[:, self.registers :]
        valid_BL = None if valid_BL is None else valid_BL[:, self.registers :]
        pooled = self.pooling(read_BLD, valid_BL, params) * self.config.head.scale
        logits = self.head(pooled, jnp.float32)
        return (logits, penalty) if with_penalty else logits
