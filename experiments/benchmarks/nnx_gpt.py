"""A GPT of the nanogpt-cpu recipe from flax's own layers, a peer in the speed benchmarks.

Pre-LN without biases, learned positions, tied embeddings, exact GELU, as flax's documentation would have one write it:
`nnx.MultiHeadAttention` with its three projections, `nnx.LayerNorm`, optax's AdamW behind `nnx.split`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from transformer.runs.config import RunConfig
from transformer.runs.rules import AdamW


class Block(nnx.Module):
    def __init__(self, d_model: int, num_heads: int, rngs: nnx.Rngs):
        self.norm1, self.norm2 = (nnx.LayerNorm(d_model, use_bias=False, rngs=rngs) for _ in range(2))
        self.attention = nnx.MultiHeadAttention(num_heads, d_model, use_bias=False, decode=False, rngs=rngs)
        self.up = nnx.Linear(d_model, 4 * d_model, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(4 * d_model, d_model, use_bias=False, rngs=rngs)

    def __call__(self, x_BLD, mask):
        x_BLD = x_BLD + self.attention(self.norm1(x_BLD), mask=mask)
        return x_BLD + self.down(jax.nn.gelu(self.up(self.norm2(x_BLD)), approximate=False))


class GPT(nnx.Module):
    def __init__(self, config: RunConfig, rngs: nnx.Rngs):
        model = config.model
        assert model.vocab_size is not None
        assert model.attention is not None
        self.tokens = nnx.Embed(model.vocab_size, model.d_model, rngs=rngs)
        self.positions = nnx.Embed(model.max_length, model.d_model, rngs=rngs)
        heads = model.attention.num_heads
        self.blocks = nnx.List(Block(model.d_model, heads, rngs) for _ in range(model.num_layers))
        self.norm = nnx.LayerNorm(model.d_model, use_bias=False, rngs=rngs)

    def __call__(self, tokens_BL):
        mask = nnx.make_causal_mask(tokens_BL)
        x_BLD = self.tokens(tokens_BL) + self.positions(jnp.arange(tokens_BL.shape[1]))
        for block in self.blocks:
            x_BLD = block(x_BLD, mask)
        return self.tokens.attend(self.norm(x_BLD))


def make_train(config: RunConfig) -> tuple[Callable[..., Any], Any]:
    """(a compiled function of a state and several batches (T, B, L + 1), the initial state)."""
    o, rule = config.optimizer, config.optimizer.rule
    assert isinstance(rule, AdamW)
    graphdef, params = nnx.split(GPT(config, nnx.Rngs(0)))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, o.learning_rate, o.warmup_steps, config.steps, o.learning_rate / 10
    )
    decayed = jax.tree.map(lambda p: p.ndim >= 2, params)
    optimizer = optax.chain(
        optax.identity() if o.clip_norm is None else optax.clip_by_global_norm(o.clip_norm),
        optax.adamw(schedule, rule.beta1, rule.beta2, rule.eps, weight_decay=o.weight_decay, mask=decayed),
    )

    def loss(params, tokens_BL):
        logits_BLV = nnx.merge(graphdef, params)(tokens_BL[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits_BLV, tokens_BL[:, 1:]).mean()

    def step(state, tokens_BL):
        params, opt_state = state
        updates, opt_state = optimizer.update(jax.grad(loss)(params, tokens_BL), opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    def train(state, tokens_TBL):
        return jax.lax.scan(step, state, tokens_TBL)[0]

    return jax.jit(train, donate_argnums=0), (params, optimizer.init(params))
