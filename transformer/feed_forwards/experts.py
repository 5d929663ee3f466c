"""Feed-forward sublayers of experts, of which each token goes through some."""

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from transformer.core.arrays import constrain, dropout, times
from transformer.core.checks import check_not_negative, check_positive
from transformer.core.errors import ConfigError
from transformer.core.modules import Dense, Parameters, at, below, make_parameter
from transformer.core.parameters import ZEROS, FanIn, Initializer, OwnParams, Parameter
from transformer.feed_forwards import routing
from transformer.feed_forwards.feed_forward import FeedForward, FeedForwardLayer
from transformer.feed_forwards.routing import Routes, expert_products, expert_rows
from transformer.mixers.mixer import Aux, Context

if TYPE_CHECKING:
    from transformer.models.config import ModelConfig


class Experts(FeedForward):
    """Several networks, and which tokens go to each."""

    routed = True
    num_experts: int
    """Number of experts."""
    shared: int
    """Number of additional networks that every token goes through."""

    @property
    def has_linear_layers(self):
        return self.shared > 0

    def check(self, model):
        super().check(model)
        if self.inner(model) is not None:
            raise ConfigError(f"model.feed_forward: {self} has no inner norm; use dense")

    def router_parameters(self) -> dict[str, Parameter]:
        """The parameters of its router besides the matrix, by name."""
        return {}

    @abc.abstractmethod
    def route(
        self, logits_BLE: jax.Array, valid_BL: jax.Array | None, params: OwnParams
    ) -> tuple[Routes, jax.Array | float]:
        """(which tokens go to which experts, the penalty added to the loss)."""

    def build(self, model, *, key):
        return ExpertsLayer(self, model, key=key)


@dataclass(frozen=True)
class TopKExperts(Experts):
    """Each token takes its `top` likeliest experts, and no token is dropped (Shazeer et al. 2017, without noise).

    With `top` 1 it is the Switch transformer (Fedus et al. 2021), whose weight is the probability itself, without the
    noise that it multiplies the router's input with in training; otherwise the weights are the softmax over the chosen
    logits. The loss gets `balance` · E Σ fₑ Pₑ, fₑ the share of tokens and Pₑ the mean probability of an expert (Fedus
    et al. 2021, equation 4), and `router_z` · mean (log Σ exp logits)² (Zoph et al. 2022, equation 5).

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
            raise ConfigError(f"{self.name}.top: {self.top} is not in [1, {self.num_experts}], the experts")
        check_not_negative(self, "shared", "balance", "router_z", "bias_step")

    def router_parameters(self):
        return {"bias": Parameter((self.num_experts,), ZEROS)} if self.bias_step else {}

    def choose(self, logits_BLE: jax.Array, bias_E: jax.Array | None) -> jax.Array:
        """The experts (B, L, top) of each token."""
        return routing.chosen(logits_BLE, self.top, bias_E)

    def imbalance(self, logits_BLE: jax.Array, shares_E: jax.Array, valid_BL: jax.Array | None) -> jax.Array:
        """The loss for unequal loads, of what the router says and each expert's share of the tokens."""
        return routing.imbalance(jax.nn.softmax(logits_BLE), shares_E, valid_BL)

    def weigh(self, logits_BLE: jax.Array, experts_BLX: jax.Array) -> jax.Array:
        """The weights (B, L, top) of the experts that were chosen."""
        chosen = jnp.take_along_axis(logits_BLE, experts_BLX, -1)
        # A softmax over the chosen experts or, with one, over all experts, so that the router has a gradient.
        return jnp.exp(chosen - jax.nn.logsumexp(logits_BLE if self.top == 1 else chosen, -1, keepdims=True))

    def route(self, logits_BLE, valid_BL, params):
        bias_E = params.get("bias")
        experts_BLX = self.choose(logits_BLE, bias_E)
        shares_E = routing.shares(experts_BLX, self.num_experts, valid_BL)
        penalty = self.balance * self.imbalance(logits_BLE, shares_E, valid_BL)
        penalty += self.router_z * routing.router_z(logits_BLE, valid_BL)
        if bias_E is not None:
            penalty += self.bias_step * routing.excess(bias_E, shares_E)
        return routing.token_choice(experts_BLX, self.weigh(logits_BLE, experts_BLX), self.num_experts), penalty


@dataclass(frozen=True)
class TopKProbabilities(TopKExperts):
    """`top_k` with the weights that the softmax over all experts gives (OLMoE, Muennighoff et al. 2024)."""

    name = "top_k_probabilities"

    def weigh(self, logits_BLE, experts_BLX):
        return jnp.take_along_axis(jax.nn.softmax(logits_BLE), experts_BLX, -1)


@dataclass(frozen=True)
class SigmoidTopK(TopKExperts):
    """`top_k` by scores σ(logit), weighted by their share of the sum over the chosen (DeepSeek-V3, 2024, section 2.1).

    The numbers that balance the loads are added to the scores. With several groups of experts, a token takes those of
    the `top_groups` in which the sum of the two highest is largest. The loss with `balance` is that of each sequence:
    fₑ is of the experts with the highest scores, whatever numbers and groups choose, and Pₑ of shares of the sum of all
    scores (equations 17 to 20).
    """

    name = "sigmoid_top_k"
    balance: float = 0.0001
    router_z: float = 0.0
    bias_step: float = 0.001
    factor: float = 1.0
    """Factor on all weights, such as 2.5 to balance the shared experts."""
    num_groups: int = 1
    """Groups of neighbouring experts, such as those of one node."""
    top_groups: int = 1
    """Groups each token takes experts from."""

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "factor", "num_groups", "top_groups")
        if self.top == 1:
            raise ConfigError(f"{self.name}.top: 1 has the weight 1 whatever its score; use top_k")

    def check(self, model):
        super().check(model)
        if self.num_experts % self.num_groups:
            raise ConfigError(f"{self.name}.num_groups: {self.num_groups} do not divide {self.num_experts} experts")
        there = self.top_groups * self.num_experts // self.num_groups
        if self.top_groups > self.num_groups or self.top > there:
            raise ConfigError(
                f"{self.name}.top_groups: {self.top_groups} of {self.num_groups} groups with {there} experts, of which "
                f"a token takes {self.top}"
            )

    def choose(self, logits_BLE, bias_E):
        scores_BLE = jax.nn.sigmoid(logits_BLE) if bias_E is None else jax.nn.sigmoid(logits_BLE) + bias_E
        return routing.chosen(routing.of_best_groups(scores_BLE, self.num_groups, self.top_groups), self.top)

    def imbalance(self, logits_BLE, shares_E, valid_BL):
        experts_BLX = routing.chosen(jax.nn.sigmoid(logits_BLE), self.top)
        probabilities_BLE = jax.nn.softmax(jax.nn.log_sigmoid(logits_BLE))  # as in `weigh`
        return routing.imbalance_of_sequences(probabilities_BLE, experts_BLX, valid_BL)

    def weigh(self, logits_BLE, experts_BLX):
        # The share σ(a) / Σ σ(b) as a softmax of log σ, which no score underflows.
        chosen = jax.nn.log_sigmoid(jnp.take_along_axis(logits_BLE, experts_BLX, -1))
        return self.factor * jax.nn.softmax(chosen)


@dataclass(frozen=True)
class ExpertChoice(Experts):
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


class ExpertsLayer(nnx.Module):
    """Σ weight · expert(x) over the experts a token is routed to, plus the shared experts.

    With biases the router has one too, as that of gpt-oss (2025).
    """

    def __init__(self, experts: Experts, model: "ModelConfig", *, key: jax.Array):
        self.experts = experts
        E, D, F, initializer = experts.num_experts, model.d_model, experts.width(model), model.initializer
        inner_gain, output_gain = experts.gains(model)
        self.router = Dense(D, E, initializer=FanIn(), bias=experts.bias, key=at(key, "router"))
        self.router_params = Parameters(experts.router_parameters(), key=at(key, "router_params"))
        self.branches = nnx.List(
            make_parameter(_stacked(E, D, F, initializer, inner_gain), at(key, "branches", i))
            for i in range(experts.activation.branches)
        )
        self.out = make_parameter(_stacked(E, F, D, initializer, output_gain), at(key, "out"))
        self.branch_biases = nnx.List(
            make_parameter(_biases(E, F), at(key, "branch_biases", i))
            for i in range(experts.activation.branches if experts.bias else 0)
        )
        self.out_bias = make_parameter(_biases(E, D), at(key, "out_bias")) if experts.bias else None
        self.shared = nnx.List(
            FeedForwardLayer(experts, model, key=at(key, "shared", i)) for i in range(experts.shared)
        )

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Aux]:
        """The output (B, L, D), and what the router adds to the loss; a key turns dropout on."""
        x_TD = x_BLD.reshape(-1, x_BLD.shape[-1])
        logits_BLE = checkpoint_name(self.router(x_BLD.astype(jnp.float32)), "router")
        routes, penalty = self.experts.route(logits_BLE, context.tokens.valid, self.router_params())
        x_XD = constrain(x_TD[routes.tokens_X])
        branches = [expert_products(x_XD, kernels[...], routes.sizes_E) for kernels in self.branches]
        for i, biases in enumerate(self.branch_biases):
            branches[i] += expert_rows(biases[...], routes.sizes_E, len(x_XD)).astype(x_XD.dtype)
        hidden_XF = dropout(self.experts.activation(*branches), self.experts.dropout, key)
        out_XD = expert_products(hidden_XF, self.out[...], routes.sizes_E)
        if self.out_bias is not None:
            out_XD += expert_rows(self.out_bias[...], routes.sizes_E, len(x_XD)).astype(x_XD.dtype)
        out_XD = times(routes.weights_X[:, None], out_XD)
        y_BLD = jnp.zeros_like(x_TD).at[routes.tokens_X].add(out_XD).reshape(x_BLD.shape)
        for i, one in enumerate(self.shared):
            with jax.named_scope(f"shared.{i}"):
                y_BLD = y_BLD + one(x_BLD, key=below(key, "shared", i))[0]
        return y_BLD, Aux(penalty=penalty)


def _stacked(count: int, d_in: int, d_out: int, initializer: Initializer, gain: float) -> Parameter:
    """Matrices (E, D, F), each initialized on its own."""
    return Parameter((count, d_in, d_out), initializer, gain=gain, stacked=True)


def _biases(count: int, width: int) -> Parameter:
    """Biases (E, F), which like others do not decay."""
    return Parameter((count, width), ZEROS, decay=False, stacked=True)
