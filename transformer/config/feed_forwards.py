"""What a feed-forward sublayer is: one network, or several of which each token takes some."""

from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.config.variant import ConfigError, Variant, check_not_negative
from transformer.functional import routing
from transformer.functional.routing import Routes


class FeedForwardKind(Variant):
    """How many networks there are, and which tokens go where."""

    num_experts: int = 0
    """0: one network for all tokens."""
    shared: int = 0
    """Networks that every token goes through besides."""
    mixes_tokens: ClassVar[bool] = False
    """Whether the way of a token depends on other tokens: no part of a causal model."""

    def route(self, logits_BLE: jax.Array, valid_BL: jax.Array | None) -> tuple[Routes, jax.Array]:
        """Which tokens go where, and what is added to the loss."""
        raise NotImplementedError(f"{type(self).__name__} has experts and no route(logits, valid)")


@dataclass(frozen=True)
class DenseFeedForward(FeedForwardKind):
    """One network (Vaswani et al. 2017)."""

    name = "dense"


@dataclass(frozen=True)
class TopKExperts(FeedForwardKind):
    """Each token takes its `top` likeliest experts, and none is dropped (Shazeer et al. 2017).

    With `top` 1 the Switch transformer (Fedus et al. 2021), and the weight is the probability itself;
    otherwise the weights are the softmax over the chosen logits. The loss gets `balance` · E Σ fₑ Pₑ, fₑ
    the share of tokens and Pₑ the mean probability of an expert (the same, equation 4), and `router_z` ·
    mean (log Σ exp logits)² (Zoph et al. 2022, equation 5).
    """

    name = "top_k"
    num_experts: int = 4
    top: int = 2
    shared: int = 0
    """Experts that every token takes besides (DeepSeekMoE, Dai et al. 2024)."""
    balance: float = 0.01
    router_z: float = 0.001

    def __post_init__(self):
        if not 1 <= self.top <= self.num_experts:
            raise ConfigError(f"top_k.top: {self.top} of {self.num_experts} experts")
        check_not_negative(self, "shared", "balance", "router_z")

    def route(self, logits_BLE, valid_BL):
        penalty = self.balance * routing.imbalance(logits_BLE, self.top, valid_BL)
        penalty += self.router_z * routing.router_z(logits_BLE, valid_BL)
        return routing.token_choice(logits_BLE, self.top), penalty


@dataclass(frozen=True)
class ExpertChoice(FeedForwardKind):
    """Each expert takes its `share` · L / E likeliest tokens of every sequence (Zhou et al. 2022, equation 1).

    Balanced by construction. What an expert takes depends on all tokens: for encoders.
    """

    name = "expert_choice"
    num_experts: int = 4
    share: float = 2.0
    """Experts a token has on average."""
    shared: int = 0
    mixes_tokens = True

    def __post_init__(self):
        if self.num_experts < 1 or not 0 < self.share <= self.num_experts:
            raise ConfigError(f"expert_choice.share: {self.share} of {self.num_experts} experts")
        check_not_negative(self, "shared")

    def route(self, logits_BLE, valid_BL):
        return routing.expert_choice(logits_BLE, self.share, valid_BL), 0.0
