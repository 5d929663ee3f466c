"""Measures of attention patterns, a number for each head.

Patterns are (…, B, H, L, S), as `run_with_cache` reads them, with any leading axes (layers, replicas); the
results are (…, H), means over sequences and queries. A fully masked query, whose weights are 0, counts as 0.
"""

import jax
import jax.numpy as jnp
import numpy as np


def attention_entropy(pattern_BHLS: jax.Array) -> jax.Array:
    """-Σ w log w in nats: 0 for a single key, log S for equal weights (Clark et al. 2019, section 3.3)."""
    return jax.scipy.special.entr(pattern_BHLS).sum(-1).mean((-3, -1))


def attention_distance(pattern_BHLS: jax.Array) -> jax.Array:
    """The mean of |query - key| in tokens under the weights (Dosovitskiy et al. 2020, section 4.5).

    The last query is at the position of the last key. Keys that are no tokens, as those of the part `memory`, count as
    tokens before the text.
    """
    length, span = pattern_BHLS.shape[-2:]
    distance_LS = np.abs(np.arange(span - length, span)[:, None] - np.arange(span))
    return (pattern_BHLS * distance_LS.astype(np.float32)).sum(-1).mean((-3, -1))


def previous_token_scores(pattern_BHLS: jax.Array) -> jax.Array:
    """The mean weight on the previous token (Olsson et al. 2022)."""
    return _diagonal(pattern_BHLS, -1).mean((-3, -1))


def induction_scores(pattern_BHLS: jax.Array, period: int) -> jax.Array:
    """The mean weight, in sequences that repeat after `period` tokens, on the token after the previous occurrence.

    (Olsson et al. 2022, appendix: prefix matching on repeated random tokens, `repeated_tokens`.) It is that of the
    heads that copy by one look back: where a circuit takes more hops, it is low though the model copies.
    """
    length = pattern_BHLS.shape[-2]
    if not 0 < period < length:
        raise ValueError(f"{length} tokens do not repeat after {period}")
    # The last token of the first occurrence has none before it.
    return _diagonal(pattern_BHLS, 1 - period)[..., 1:].mean((-3, -1))


def _diagonal(pattern_BHLS: jax.Array, offset: int) -> jax.Array:
    length, span = pattern_BHLS.shape[-2:]
    if length != span:
        raise ValueError(f"a pattern of {length} queries and {span} keys: this is of self-attention without a cache")
    if not -length < offset <= 0:
        raise ValueError(f"{length} tokens have none {-offset} before them")
    return jnp.diagonal(pattern_BHLS, offset, -2, -1)


def repeated_tokens(key: jax.Array, batch_size: int, period: int, vocab_size: int) -> jax.Array:
    """Different random tokens, then the same again, (B, 2 · period) int32: the repetition can only be copied.

    Raises:
      ValueError: `period` is not in [1, `vocab_size`].
    """
    if not 0 < period <= vocab_size:
        raise ValueError(f"{period} different tokens of {vocab_size}")
    keys = jax.random.split(key, batch_size)
    half_BL = jax.vmap(lambda key: jax.random.permutation(key, vocab_size)[:period])(keys)
    return jnp.concatenate([half_BL, half_BL], 1)
