"""Parts of attention that normalize queries, keys or values in each head."""

import abc
from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.core.errors import ConfigError
from transformer.core.parameters import OwnParams
from transformer.mixers.attention.base import HeadShape
from transformer.mixers.attention.part import Part
from transformer.norms.norm import Norm, RMSNorm


class RoleNorm(Part):
    """A norm of what some roles have, with parameters of its own for each."""

    norm: Norm
    normalized: ClassVar[tuple[str, ...]] = ("query", "key")
    """The roles."""

    @abc.abstractmethod
    def size(self, role: str, shape: HeadShape) -> int:
        """Size of the vectors of a role."""

    def check(self, attention, model):
        for role in self.normalized:
            self.norm.check(self.size(role, attention.shape(model)))
        if self.norm.mixes_tokens:
            raise ConfigError(f"{self.name}.norm: {self.norm} is a norm of whole sequences; use layernorm")

    def parameters(self, attention, model):
        shape = attention.shape(model)
        return {
            f"{role}_{name}": spec
            for role in self.normalized
            if role in attention.roles
            for name, spec in self.norm.parameters(self.size(role, shape)).items()
        }

    def normed(self, role: str, x: jax.Array, params: OwnParams) -> jax.Array:
        """What a role has, (…, its size), normalized where the role is one of them."""
        if role not in self.normalized:
            return x
        own = {name.removeprefix(f"{role}_"): value for name, value in params.items() if name.startswith(f"{role}_")}
        with jax.named_scope(f"{role}_norm"):
            return self.norm(x, own)


class HeadNorm(RoleNorm):
    """A norm in each head."""

    def size(self, role, shape):
        return shape.value_size if role == "value" else shape.key_size

    def split(self, role, x_BLHK, params):
        return self.normed(role, x_BLHK, params)


@dataclass(frozen=True)
class QKNorm(HeadNorm):
    """Queries and keys normalized in each head (Henry et al. 2020; Dehghani et al. 2023)."""

    name = "qk_norm"
    norm: Norm = RMSNorm()
    """The norm, with gains of its own for queries and for keys."""

    def check(self, attention, model):
        shape = attention.shape(model)
        if shape.rotary_dim != shape.key_size:
            raise ConfigError(
                f"mixer.parts: queries and keys of {attention.heads} are not projections alone for {self}"
            )
        super().check(attention, model)


@dataclass(frozen=True)
class WideQKNorm(RoleNorm):
    """Projections of queries and of keys normalized over all heads (OLMo 2, 2024, section 3.3)."""

    name = "wide_qk_norm"
    norm: Norm = RMSNorm()
    """The norm, with gains of its own for queries and for keys."""

    def size(self, role, shape):
        return shape.widths[role]

    def check(self, attention, model):
        if not all(attention.shape(model).widths[role] for role in self.normalized):
            raise ConfigError(f"mixer.parts: {attention.heads} has no projections to compare for {self}")
        super().check(attention, model)

    def project(self, role, projected_BLX, x_BLD, params):
        return self.normed(role, projected_BLX, params)


@dataclass(frozen=True)
class ValueNorm(HeadNorm):
    """Values normalized in each head (HybridNorm, Zhuo et al. 2025)."""

    name = "value_norm"
    norm: Norm = RMSNorm()
    """The norm."""
    normalized = ("value",)

    def check(self, attention, model):
        if not attention.shape(model).widths["value"]:
            raise ConfigError(f"mixer.parts: {attention.heads} makes no values for {self}; use heads=none")
        super().check(attention, model)
