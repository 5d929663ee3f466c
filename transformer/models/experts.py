"""A feed-forward sublayer of experts, of which each token goes through some."""

import jax
import jax.numpy as jnp
from flax import nnx

from transformer.core.dense import Dense
from transformer.core.devices import constrain
from transformer.core.dropout import dropout
from transformer.core.modules import Parameters, at, below, make_parameter
from transformer.core.names import named, scope
from transformer.core.parameters import FanIn, Initializer, Parameter
from transformer.feed_forwards.routing import expert_products
from transformer.models.config import ModelConfig
from transformer.models.context import Context, Kept
from transformer.models.feed_forward import FeedForward


def make_feed_forward(config: ModelConfig, *, key: jax.Array) -> nnx.Module:
    """The feed-forward sublayer of the config."""
    return (Experts if config.feed_forward.num_experts else FeedForward)(config, key=key)


class Experts(nnx.Module):
    """Σ weight · expert(x) over the experts a token is routed to, plus the shared experts."""

    def __init__(self, config: ModelConfig, *, key: jax.Array):
        self.config, self.kind = config, config.feed_forward
        E, D, F, law = self.kind.num_experts, config.d_model, config.ff_width, config.initializer
        self.router = Dense(D, E, initializer=FanIn(), bias=False, key=at(key, "router"))
        self.router_params = Parameters(self.kind.parameters(), key=at(key, "router_params"))
        self.branches = nnx.List(
            make_parameter(_stacked(E, D, F, law, config.inner_gain("feed_forward")), at(key, "branches", i))
            for i in range(config.activation.branches)
        )
        self.out = make_parameter(_stacked(E, F, D, law, config.residual_gain("feed_forward")), at(key, "out"))
        self.shared = nnx.List(FeedForward(config, key=at(key, "shared", i)) for i in range(self.kind.shared))

    def __call__(self, x_BLD: jax.Array, *, context: Context, key: jax.Array | None = None) -> tuple[jax.Array, Kept]:
        """The output (B, L, D), and what the router adds to the loss; a key turns dropout on."""
        x_TD = x_BLD.reshape(-1, x_BLD.shape[-1])
        logits_BLE = named(self.router(x_BLD.astype(jnp.float32)), "router")
        routes, penalty = self.kind.route(logits_BLE, context.tokens.valid, self.router_params())
        x_XD = constrain(x_TD[routes.tokens_X])
        branches = [expert_products(x_XD, kernels[...], routes.sizes_E) for kernels in self.branches]
        hidden_XF = dropout(self.config.activation(*branches), self.config.feed_forward_dropout, key)
        out_XD = expert_products(hidden_XF, self.out[...], routes.sizes_E) * routes.weights_X[:, None].astype(
            x_XD.dtype
        )
        y_BLD = jnp.zeros_like(x_TD).at[routes.tokens_X].add(out_XD).reshape(x_BLD.shape)
        for i, one in enumerate(self.shared):
            with scope(f"shared.{i}"):
                y_BLD = y_BLD + one(x_BLD, key=below(key, "shared", i))[0]
        return y_BLD, Kept(penalty=penalty)


def _stacked(count: int, d_in: int, d_out: int, law: Initializer, gain: float) -> Parameter:
    """Matrices (E, D, F), each initialized on its own."""
    return Parameter((count, d_in, d_out), law, gain=gain, stacked=True)
