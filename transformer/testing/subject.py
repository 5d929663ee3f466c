"""A tiny model under test, with random parameters, each of whose programs is traced once."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer.core import modules as pure
from transformer.core.modules import Params
from transformer.core.parameters import Normal, Parameter
from transformer.embeddings.embedding import Embedding, Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.cache import select_beams, with_beams
from transformer.mixers.attention.attention import Attention
from transformer.models.build import abstract_model, pure_model
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.stack import Scanned
from transformer.testing.evaluation import Evaluated

LENGTH, NOW, ROOM, VOCAB = 8, 4, 12, 19
"""Lengths of a sequence, of the part before the token in question, and of a row with padding or a second sequence;
size of the vocabulary."""
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "max_length": ROOM,
    "num_layers": 2,
    "d_model": 32,
    "mixer": Attention(num_heads=4, num_kv_heads=2),
    "feed_forward": FeedForward(d_ff=24),
    "initializer": Normal(0.2),
    "embedding": Embedding(initializer=Normal(0.5)),
    "head": Head(tied=False),
    "layers": Scanned(),
}
"""Sizes in which no two axes are equal except those that have to be; one layer is traced for all."""
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
"""Options for quick compilation, because the programs of the tests are many and run a few times.

One piece of machine code per program, instead of 32 compiled in parallel, takes two thirds of the time;
kernels without MLIR a quarter of that. Later JAX lacks these, and stops at an option it does not know.
"""
if jax.__version_info__ < (0, 11):
    QUICK["xla_cpu_use_fusion_emitters"] = False


def small(kind: type[ModelConfig] = ModelConfig, **choices: Any) -> ModelConfig:
    """A config with the sizes of the tests, and choices by dotted path."""
    more: dict[str, Any] = {}
    if kind is EncoderDecoderConfig:
        more = {"source_vocab_size": VOCAB, "max_source_length": LENGTH}
    return _small(kind, **more).replace(choices)


@functools.cache
def _small(kind: type[ModelConfig], **more: Any) -> ModelConfig:
    return kind(**SMALL | more)


def tokens_of(batch_size: int, length: int = LENGTH, seed: int = 0) -> np.ndarray:
    """Sequences of different tokens, so that each token has its own row of the embedding table."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(VOCAB)[:length] for _ in range(batch_size)]).astype(np.int32)


class Subject:
    """A model and its pure programs; all of `params` are random, `initial` are the initial values."""

    def __init__(self, config: ModelConfig, initial: Params | None = None):
        self.config = config
        _, self.apply = pure_model(config)
        self.initial = initial_values(config) if initial is None else initial
        self.params = shaken(self.initial)
        if (
            config.last_norm is None or not config.last_norm.bounds
        ):  # what no norm bounds would outgrow float32, or saturate every softmax
            self.params = jax.tree.map(lambda p: (0.5 * p).astype(p.dtype), self.params)

    def changed(self, **choices: Any) -> "Subject":
        """The same parameters with other choices."""
        return Subject(self.config.replace(**choices), self.initial)

    @functools.cached_property
    def forward(self) -> Evaluated:
        """Maps (params of R replicas, tokens (B, ROOM), positions, segments, valid) to logits (R, B, ROOM, V)."""

        def run(params, tokens_BL, positions_BL, segments_BL, valid_BL):
            more = {"positions_BL": positions_BL, "valid_BL": valid_BL}
            segments = {} if self.config.mixing_choice is not None else {"segments_BL": segments_BL}
            return self.apply(params, tokens_BL, **more, **segments)

        return Evaluated(jax.vmap(run, in_axes=(0, None, None, None, None)))

    def replicas(self, tokens_BL, *, params, positions=None, segments=None, valid=None) -> np.ndarray:
        """`forward` of a pair of parameters; arguments left out are those of plain sequences."""
        shape = np.shape(tokens_BL)
        positions = np.broadcast_to(np.arange(shape[1]) if positions is None else positions, shape)
        segments = np.zeros(shape, np.int32) if segments is None else segments
        valid = np.ones(shape, bool) if valid is None else np.broadcast_to(valid, shape)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
        return np.asarray(self.forward(stacked, *map(jnp.asarray, (tokens_BL, positions, segments, valid))))

    def logits(self, tokens_BL, *, params=None, **more) -> np.ndarray:
        """Logits (B, ROOM, V): `replicas` where both are the same."""
        params = self.params if params is None else params
        return self.replicas(tokens_BL, params=(params, params), **more)[0]

    def alone(self, tokens_BL, *, params=None) -> np.ndarray:
        """Logits of plain sequences, (B, LENGTH, V), from the program that also computes the gradient."""
        ones = np.ones(np.shape(tokens_BL), np.float32)
        return np.asarray(self.gradient(self.params if params is None else params, tokens_BL, ones)[0][1])

    @functools.cached_property
    def gradient(self) -> Evaluated:
        """Maps (params, tokens (B, L), weights (B, L)) to ((loss, logits), gradients).

        The loss is the weighted sum of squared logits plus, where all tokens have a weight, the penalty, which
        concerns all tokens at once.
        """

        def loss(params, tokens_BL, weights_BL):
            logits_BLV, penalty = self.apply(params, tokens_BL, with_penalty=True)
            counted = weights_BL.all().astype(jnp.float32)
            return (jnp.square(logits_BLV).mean(-1) * weights_BL).sum() + penalty * counted, logits_BLV

        return Evaluated(jax.value_and_grad(loss, has_aux=True))

    @functools.cached_property
    def steps(self) -> Evaluated:
        """Maps (params, prompt and continuation (B, L)) to logits after a prompt of NOW tokens, one by one, cached."""

        def run(params, tokens_BL):
            cache = self.apply(params, len(tokens_BL), tokens_BL.shape[1], method="start")
            first_BLV, cache = self.apply(params, tokens_BL[:, :NOW], cache, method="extend")
            read = self.apply(params, method="reader")

            def one(cache, token_B):
                logits_B1V, cache = read(token_B[:, None], cache)
                return cache, logits_B1V[:, 0]

            _, rest_LBV = lax.scan(one, cache, tokens_BL[:, NOW:].T)
            return jnp.concatenate([first_BLV, jnp.moveaxis(rest_LBV, 0, 1)], 1)

        return Evaluated(run)

    @functools.cached_property
    def beams(self) -> Evaluated:
        """Maps (params, two texts (2, L) with the same NOW first tokens) to logits, read as two beams of one sequence.

        After each token the beams change places.
        """
        turned_T1 = np.arange(LENGTH - NOW)[:, None] % 2 == 1

        def run(params, tokens_2L):
            cache = self.apply(params, 1, LENGTH, method="start")
            first_1LV, cache = self.apply(params, tokens_2L[:1, :NOW], cache, method="extend")
            read = self.apply(params, method="reader")

            def one(cache, token_2):
                logits_12V, cache = read(token_2[None], cache)
                return select_beams(cache, jnp.array([[1, 0]])), logits_12V[0]

            rest_T2 = tokens_2L[:, NOW:].T
            rest_T2 = jnp.where(turned_T1, rest_T2[:, ::-1], rest_T2)
            _, rest_T2V = lax.scan(one, with_beams(cache, 2, NOW, LENGTH - NOW), rest_T2)
            rest_T2V = jnp.where(turned_T1[..., None], rest_T2V[:, ::-1], rest_T2V)
            return jnp.concatenate([jnp.repeat(first_1LV, 2, 0), jnp.moveaxis(rest_T2V, 0, 1)], 1)

        return Evaluated(run)

    @functools.cached_property
    def segments(self) -> Evaluated:
        """Maps (params, tokens (B, L)) to logits, read in segments of NOW tokens."""

        def run(params, tokens_BL):
            def follow(earlier, segment_BL):
                logits_BLV, earlier = self.apply(params, segment_BL, earlier, method="read_segment")
                return earlier, logits_BLV

            earlier = self.apply(params, len(tokens_BL), method="empty_memory")
            segments_XBL = jnp.stack(jnp.split(tokens_BL, LENGTH // NOW, axis=1))
            return jnp.concatenate(lax.scan(follow, earlier, segments_XBL)[1], 1)

        return Evaluated(run)


def initial_values(config: ModelConfig) -> Params:
    """Initial values of the parameters of a config."""
    return jax.tree.map(drawn, pure.specs(abstract_model(config)), pure_model(config)[0])


@functools.cache
def drawn(spec: Parameter, shape: jax.ShapeDtypeStruct) -> np.ndarray:
    """Initial values from the distribution of a parameter, for each layer where layers are stacked."""
    keys = jax.random.split(jax.random.key(math.prod(shape.shape)), shape.shape[0] if shape.shape else 1)
    value = Evaluated(spec.initial_value)
    return value(keys[0]) if shape.shape == spec.shape else np.stack([value(key) for key in keys])


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled with little optimization."""
    return jax.jit(function, compiler_options=QUICK)


def shaken(params: Params, seed: int = 0) -> Params:
    """Every number changed at random, so that none is zero, one, or equal to another."""
    leaves, treedef = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    moved = [leaf + np.asarray(0.2 * rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
    return jax.tree.unflatten(treedef, moved)
