"""Parts of attention that normalize queries, keys or values in each head."""

from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.core.values import ConfigError
from transformer.mixers.attention.base import Part
from transformer.norms.norm import Norm, RMSNorm


class HeadNorm(Part):
    """A norm of what some roles have in each head."""

    norm: Norm
    normalized: ClassVar[tuple[str, ...]]
    """The roles."""

    def check(self, attention, model):
        shape = attention.shape(model)
        self.norm.check(shape.value_size if self.normalized == ("value",) else shape.key_size)
        if self.norm.mixes_tokens:
            raise ConfigError(f"{self.name}.norm: {self.norm} is a norm of whole sequences; use layernorm")

    def parameters(self, attention, model):
        shape = attention.shape(model)
        return {
            f"{role}_{name}": spec
            for role in self.normalized
            if role in attention.roles
            for name, spec in self.norm.parameters(shape.value_size if role == "value" else shape.key_size).items()
        }

    def split(self, role, x_BLHK, params):
        if role not in self.normalized:
            return x_BLHK
        own = {name.removeprefix(f"{role}_"): value for name, value in params.items() if name.startswith(f"{role}_")}
        with jax.named_scope(f"{role}_norm"):
            return self.norm(x_BLHK, own)


@dataclass(frozen=True)
class QKNorm(HeadNorm):
    """Queries and keys normalized in each head (Henry et al. 2020; Dehghani et al. 2023)."""

    name = "qk_norm"
    norm: Norm = RMSNorm()
    """The norm, with gains of its own for queries and for keys."""
    normalized = ("query", "key")

    def check(self, attention, model):
        shape = attention.shape(model)
        if shape.rotary_dim != shape.key_size:
            raise ConfigError(
                f"mixer.parts: queries and keys of {attention.heads} are not projections alone for {self}"
            )
        super().check(attention, model)


@dataclass(frozen=True)
class WideQKNorm(Part):
    """Projections of queries and of keys normalized over all heads (OLMo 2, 2024, section 3.3)."""

    name = "wide_qk_norm"
    norm: Norm = RMSNorm()
    """The norm, with gains of its own for queries and for keys."""

    def check(self, attention, model):
        widths = attention.shape(model).widths
        for role in ("query", "key"):
            if not widths[role]:
                raise ConfigError(f"mixer.parts: {attention.heads} has no projections to compare for {self}")
            self.norm.check(widths[role])
        if self.norm.mixes_tokens:
            raise ConfigError(f"{self.name}.norm: {self.norm} is a norm of whole sequences; use layernorm")

    def parameters(self, attention, model):
        widths = attention.shape(model).widths
        return {
            f"{role}_{name}": spec
            for role in ("query", "key")
            if role in attention.roles
            for name, spec in self.norm.parameters(widths[role]).items()
        }

    def project(self, role, projected_BLX, x_BLD, params):
        if role == "value":
            return projected_BLX
        own = {name.removeprefix(f"{role}_"): value for name, value in params.items() if name.startswith(f"{role}_")}
        with jax.named_scope(f"{role}_norm"):
            return self.norm(projected_BLX, own)


@dataclass(frozen=True)
class ValueNorm(HeadNorm):
    """Values normalized in each head (HybridNorm, Zhuo et al. 2025)."""

    name = "value_norm"
    norm: Norm = RMSNorm()
    """The norm."""
    normalized = ("value",)
