"""Functions of the states before the output projection."""

from dataclasses import dataclass

from transformer.activations.activation import GELU, Activation
from transformer.core.arrays import dense, plus
from transformer.core.errors import ConfigError
from transformer.core.parameters import ZEROS, Normal, Parameter
from transformer.embeddings.embedding import HeadTransform
from transformer.norms.norm import LayerNorm, Norm


@dataclass(frozen=True)
class DenseTransform(HeadTransform):
    """norm(activation(xW + b)), the head of BERT for masked tokens (Devlin et al. 2018)."""

    name = "dense"
    activation: Activation = GELU()
    """Activation, of one branch."""
    norm: Norm = LayerNorm()
    """Norm after it."""
    bias: bool = True
    """Whether b is there (ModernBERT, Warner et al. 2024, has none)."""

    def check(self, d_model):
        self.norm.check(d_model)
        if self.activation.branches != 1:
            raise ConfigError(
                f"head.transform: {self.activation} takes {self.activation.branches} branches, and dense 1"
            )
        if self.norm.mixes_tokens:
            raise ConfigError(f"head.transform: {self.norm} is a norm of whole sequences; use layernorm")

    def parameters(self, d_model):
        own = {"kernel": Parameter((d_model, d_model), Normal(0.02))}
        own |= {"bias": Parameter((d_model,), ZEROS)} if self.bias else {}
        return own | {f"norm_{name}": spec for name, spec in self.norm.parameters(d_model).items()}

    def __call__(self, x_BLD, params):
        x_BLD = dense(x_BLD, params["kernel"])
        x_BLD = self.activation(plus(x_BLD, params["bias"]) if self.bias else x_BLD)
        return self.norm(x_BLD, {name.removeprefix("norm_"): value for name, value in params.items()})
