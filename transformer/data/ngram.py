"""An n-gram model, whose loss is the reference for the loss of a language model."""

import numpy as np


def ngram_loss(
    train: np.ndarray,
    validation: np.ndarray,
    vocab_size: int,
    order: int,
    train_ends: np.ndarray | None = None,
    validation_ends: np.ndarray | None = None,
) -> float:
    """Loss in nats per token of an interpolated Witten-Bell model with `order` tokens of context.

    p_n(w|h) = (c(h, w) + t(h) · p_(n-1)(w|h')) / (c(h) + t(h)), t(h) the number of types seen after
    h, down to the uniform distribution (Witten and Bell 1991; Chen and Goodman 1998, section 2.4).
    Every token of the validation part is predicted, the first ones from less context; where it is documents, every
    token but the first of each, from those before it in the same one.

    Args:
      train: tokens that are counted.
      validation: tokens that are predicted.
      vocab_size: number of types.
      order: tokens of context.
      train_ends: where the documents of `train` end, the last one at its end; None: it is one text.
      validation_ends: where those of `validation` end.

    Raises:
      ValueError: order and vocabulary are too large to number contexts with 64 bits.
    """
    if vocab_size ** (order + 1) >= 2**63:
        raise ValueError(f"order {order} over {vocab_size} types does not fit in 64 bits")
    places, validation_places = _places(len(train), train_ends), _places(len(validation), validation_ends)
    probability = np.full(len(validation), 1 / vocab_size)
    for n in range(order + 1):
        history, word = _ngrams(train, np.flatnonzero(places >= n), n, vocab_size)
        contexts, context_counts = np.unique(history, return_counts=True)
        grams, gram_counts = np.unique(history * vocab_size + word, return_counts=True)
        types = np.unique(grams // vocab_size, return_counts=True)[1]
        there = np.flatnonzero(validation_places >= n)
        history, word = _ngrams(validation, there, n, vocab_size)
        count_h, types_h = _look_up(contexts, context_counts, history), _look_up(contexts, types, history)
        count_hw = _look_up(grams, gram_counts, history * vocab_size + word)
        seen = count_h > 0
        mixed = (count_hw + types_h * probability[there]) / np.where(seen, count_h + types_h, 1)
        probability[there] = np.where(seen, mixed, probability[there])
    predicted = probability if validation_ends is None else probability[validation_places > 0]
    return float(-np.log(predicted).mean())


def usual_order(vocab_size: int) -> int:
    """4 tokens of context, or as many as 64 bits can number."""
    return max(n for n in range(5) if vocab_size ** (n + 1) < 2**63)


def _places(count: int, ends: np.ndarray | None) -> np.ndarray:
    """The place of each of `count` tokens in its document."""
    ends = np.array([count]) if ends is None else ends
    lengths = np.diff(ends, prepend=0)
    return np.arange(count) - np.repeat(ends - lengths, lengths)


def _ngrams(tokens: np.ndarray, there: np.ndarray, n: int, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The number of the context of n tokens before each of the tokens `there`, and these tokens."""
    tokens = tokens.astype(np.int64)
    history = np.zeros(len(there), np.int64)
    for back in range(n, 0, -1):
        history = history * vocab_size + tokens[there - back]
    return history, tokens[there]


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key in a sorted table; 0 where it is missing."""
    if not len(keys):
        return np.zeros(len(wanted), values.dtype)
    index = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)
