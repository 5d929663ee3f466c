"""No token sees a later one: every position, residual placement and attention implementation."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config.activations import ReLU
from transformer.config.implementations import AttentionImplementation, Chunked, Exact
from transformer.config.model import ModelConfig
from transformer.config.norms import RMSNorm
from transformer.config.parameters import Normal
from transformer.config.positions import Position
from transformer.config.residuals import Residual
from transformer.models.language_model import LanguageModel
from transformer.models.pure import split

LENGTH, NOW = 7, 3
# The programs here are many and run twice: less work on each.
QUICK = {"xla_backend_optimization_level": 0}


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


IMPLEMENTATIONS = [dataclasses.replace(a, block=2) if a == Chunked() else a for a in shipped(AttentionImplementation)]
COMBINATIONS = list(itertools.product(shipped(Position), shipped(Residual), IMPLEMENTATIONS))


@pytest.mark.parametrize(("position", "residual", "attention"), COMBINATIONS, ids=lambda choice: str(choice))
def test_nothing_from_the_future(position, residual, attention):
    """The logits at a position do not depend on the embeddings of later tokens, and do on all others.

    Every token has a row of the embedding table to itself, so that the gradient of one position's
    logits shows which tokens they saw; and other later tokens leave earlier logits as they are, bit
    for bit.
    """
    config = ModelConfig(
        vocab_size=2 * LENGTH,
        max_length=LENGTH,
        num_layers=1,
        d_model=16,
        num_heads=2,
        tie_embeddings=False,
        position=position,
        residual=residual,
        attention=attention,
        norm=RMSNorm(),
        activation=ReLU(),
        initializer=Normal(0.1),
        embedding_initializer=Normal(0.1),
    )
    params, apply = split(LanguageModel(config, key=jax.random.key(0)))

    def logits_now(table, tokens):
        logits = apply(params | {"embedding": params["embedding"] | {"table": table}}, tokens)
        return (logits[0, NOW] ** 2).sum(), logits

    run = jax.value_and_grad(logits_now, has_aux=True)
    run = run if attention == Exact() else jax.jit(run, compiler_options=QUICK)
    tokens = np.arange(LENGTH)[None]
    (_, logits), gradient = run(params["embedding"]["table"], jnp.asarray(tokens))
    seen = np.abs(gradient).max(-1)
    assert (seen[: NOW + 1] > 1e-7).all()
    assert not seen[NOW + 1 :].any()

    changed = np.where(np.arange(LENGTH) > NOW, tokens + LENGTH, tokens)
    (_, other), _ = run(params["embedding"]["table"], jnp.asarray(changed))
    np.testing.assert_array_equal(logits[:, : NOW + 1], other[:, : NOW + 1])
    assert (np.abs(logits - other)[0, NOW + 1 :].max(-1) > 1e-6).all()
