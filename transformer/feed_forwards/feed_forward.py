"""Kinds of feed-forward sublayers: one network, or experts of which each token takes some."""

from dataclasses import dataclass
from typing import ClassVar

import jax

from transformer.core.parameters import ZEROS, Parameter
from transformer.core.values import ConfigError, Variant, check_not_negative
from transformer.feed_forwards import routing
from transformer.feed_forwards.routing import Routes

Params = dict[str, jax.Array]


class FeedForwardKind(Variant):
    """How many networks a feed-forward sublayer has, and which tokens go to each."""

    num_experts: int = 0
    """Number of experts; 0: one network for all tokens."""
    shared: int = 0
    """Number of additional networks that every token goes through."""
    mixes_tokens: ClassVar[bool] = False
    """Whether the experts of a token depend on other tokens, which a causal model does not allow."""

    def parameters(self) -> dict[str, Parameter]:
        """The parameters of its router besides the matrix, by name."""
        return {}

    def route(self, logits_BLE: jax.Array, valid_BL: jax.Array | None, params: Params) -> tuple[Routes, jax.Array]:
        """(which tokens go to which experts, the penalty added to the loss)."""
        raise NotImplementedError(f"{type(self).__name__} has experts and no route(logits, valid, params)")


@dataclass(frozen=True)
class DenseFeedForward(FeedForwardKind):
    """One network for all tokens (Vaswani et al. 2017)."""

    name = "dense"


@dataclass(frozen=True)
class TopKExperts(FeedForwardKind):
    """Each token takes its `top` likeliest experts, and no token is dropped (Shazeer et al. 2017).

    With `top` 1 it is the Switch transformer (Fedus et al. 2021), whose weight is the probability itself;
    otherwise the weights are the softmax over the chosen logits. The loss gets `balance` · E Σ fₑ Pₑ, fₑ
    the share of tokens and Pₑ the mean probability of an expert (Fedus et al. 2021, equation 4), and
    `router_z` · mean (log Σ exp logits)² (Zoph et al. 2022, equation 5).

    `bias_step` balances without a loss (Wang L. et al. 2024, algorithm 1): experts are chosen by logits plus a number
    of each expert, but weighted by logits alone. Its gradient is `bias_step` times +1 where the expert has more than
    its share of the tokens and -1 where it has less, so that SGD with rate 1 is the paper's rule; Adam takes steps of
    its learning rate. The paper sets `balance` to 0.
    """

    name = "top_k"
    num_experts: int = 4
    """Experts that tokens choose from."""
    top: int = 2
    """Experts each token takes."""
    shared: int = 0
    """Additional experts that every token takes (DeepSeekMoE, Dai et al. 2024)."""
    balance: float = 0.01
    """Coefficient of the loss for unequal loads."""
    router_z: float = 0.001
    """Coefficient of the loss for large router logits."""
    bias_step: float = 0.0
    """Size of the gradient of the numbers that balance the loads, such as 0.001; 0: there are none."""

    def __post_init__(self):
        if not 1 <= self.top <= self.num_experts:
            raise ConfigError(f"top_k.top: {self.top} is not in [1, {self.num_experts}], the experts")
        check_not_negative(self, "shared", "balance", "router_z", "bias_step")

    def parameters(self):
        return {"bias": Parameter((self.num_experts,), ZEROS)} if self.bias_step else {}

    def route(self, logits_BLE, valid_BL, params):
        bias_E = params.get("bias")
        penalty = self.balance * routing.imbalance(logits_BLE, self.top, valid_BL, bias_E)
        penalty += self.router_z * routing.router_z(logits_BLE, valid_BL)
        if bias_E is not None:
            penalty += self.bias_step * routing.excess(logits_BLE, self.top, valid_BL, bias_E)
        return routing.token_choice(logits_BLE, self.top, bias_E), penalty


@dataclass(frozen=True)
class ExpertChoice(FeedForwardKind):
    """Each expert takes its `share` · L / E likeliest tokens of every sequence (Zhou et al. 2022, equation 1).

    The load is balanced by construction. What an expert takes depends on all tokens, so this is for encoders.
    """

    name = "expert_choice"
    num_experts: int = 4
    """Experts that choose tokens."""
    share: float = 2.0
    """Experts a token has on average, at most num_experts."""
    shared: int = 0
    """Additional experts that every token takes."""
    mixes_tokens = True

    def __post_init__(self):
        if self.num_experts < 1 or not 0 < self.share <= self.num_experts:
            raise ConfigError(f"expert_choice.share: {self.share} is not in (0, {self.num_experts}], the experts")
        check_not_negative(self, "shared")

    def route(self, logits_BLE, valid_BL, params):
        return routing.expert_choice(logits_BLE, self.share, valid_BL), 0.0
