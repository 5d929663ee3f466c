"""An n-gram model, whose loss is the reference for the loss of a language model."""

import numpy as np


def ngram_loss(train: np.ndarray, validation: np.ndarray, vocab_size: int, order: int) -> float:
    """Loss in nats per token of an interpolated Witten-Bell model with `order` tokens of context.

    p_n(w|h) = (c(h, w) + t(h) · p_(n-1)(w|h')) / (c(h) + t(h)), t(h) the number of types seen after
    h, down to the uniform distribution (Witten and Bell 1991; Chen and Goodman 1998, section 2.4).
    Every token of the validation part is predicted, the first ones from less context.

    Raises:
      ValueError: order and vocabulary are too large to number contexts with 64 bits.
    """
    if vocab_size ** (order + 1) >= 2**63:
        raise ValueError(f"order {order} over {vocab_size} types does not fit in 64 bits")
    probability = np.full(len(validation), 1 / vocab_size)
    for n in range(order + 1):
        history, word = _ngrams(train, n, vocab_size)
        contexts, context_counts = np.unique(history, return_counts=True)
        grams, gram_counts = np.unique(history * vocab_size + word, return_counts=True)
        types = np.unique(grams // vocab_size, return_counts=True)[1]
        history, word = _ngrams(validation, n, vocab_size)
        count_h, types_h = _look_up(contexts, context_counts, history), _look_up(contexts, types, history)
        count_hw = _look_up(grams, gram_counts, history * vocab_size + word)
        seen = count_h > 0
        mixed = (count_hw + types_h * probability[n:]) / np.where(seen, count_h + types_h, 1)
        probability[n:] = np.where(seen, mixed, probability[n:])
    return float(-np.log(probability).mean())


def usual_order(vocab_size: int) -> int:
    """4 tokens of context, or as many as 64 bits can number."""
    return max(n for n in range(5) if vocab_size ** (n + 1) < 2**63)


def _ngrams(tokens: np.ndarray, n: int, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The number of the context of n tokens before each token that has one, and the token."""
    tokens = tokens.astype(np.int64)
    history = np.zeros(max(len(tokens) - n, 0), np.int64)
    for i in range(n):
        history = history * vocab_size + tokens[i : len(tokens) - n + i]
    return history, tokens[n:]


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key in a sorted table; 0 where it is missing."""
    index = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)
