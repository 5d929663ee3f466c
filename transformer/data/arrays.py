"""A data set of one's own arrays."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer.core.errors import ConfigError
from transformer.data.dataset import Examples, check_reads_tokens, fingerprint_arrays, pad_rows, real_places
from transformer.runs.config import RunConfig
from transformer.runs.data import check_fraction, count_held_out

FRACTION = 0.1
"""Share of the sequences that is held out unless something else is said."""


@dataclass(frozen=True, kw_only=True)
class Arrays(Examples):
    """Sequences `tokens` (N, L + 1), and `weights` (N, L), 1 for labels that count.

    Where some are padded, `valid` (N, L) says which input tokens are real and have a label.
    """

    vocab_size: int

    def complete(self, config: RunConfig) -> RunConfig:
        """The config with the vocabulary of the arrays, unless it sets its own.

        Raises:
          ConfigError: the model is too short for them, or has too small a vocabulary, or the objective needs tokens
            of its own.
        """
        check_reads_tokens(config, self.source)
        if config.objective.special:
            raise ConfigError(
                f"objective: {config.objective} needs a tokenizer with special tokens, and arrays have none"
            )
        size = config.model.vocab_size or self.vocab_size
        if size < self.vocab_size:
            raise ConfigError(f"model.vocab_size: {size}, but {self.source} have the token {self.vocab_size - 1}")
        if (length := self.train["tokens"].shape[1] - 1) > config.model.max_length:
            raise ConfigError(f"model.max_length: {config.model.max_length}, but {self.source} have {length} inputs")
        return config.replace({"model.vocab_size": size})


def arrays(
    tokens: np.ndarray | Iterable[Any],
    scored: Any = None,
    *,
    validation: np.ndarray | Iterable[Any] | None = None,
    validation_scored: Any = None,
    validation_fraction: float = FRACTION,
    source: str = "arrays",
) -> Arrays:
    """A data set of sequences of token ids, each an example of next-token prediction.

    Args:
      tokens: (N, L + 1) integers from 0 on, or N sequences of several lengths, which are padded.
      scored: as `tokens`, truth values: whether a token is a label that counts, such as an answer; the first of a
        sequence never is. None: all others are.
      validation: held-out sequences, as `tokens`. None: the last ones of `tokens` are held out.
      validation_scored: as `scored`, of `validation`.
      validation_fraction: share of the sequences, at the end, that is held out without `validation`, at least one.
      source: its name in reports.

    Raises:
      ConfigError: they are no such integers, `scored` has another shape, or a part has no sequence or no label.
    """
    check_fraction("validation_fraction", validation_fraction)
    if isinstance(validation, float):
        raise ConfigError(f"arrays: validation is {validation}; the share that is held out is validation_fraction")
    if validation is not None and validation_fraction != FRACTION:
        raise ConfigError(f"arrays: validation_fraction {validation_fraction} changes nothing beside validation")
    if validation is None and validation_scored is not None:
        raise ConfigError("arrays: validation_scored marks tokens of validation, which is not given")
    rows, marks = _sequences(tokens, scored, "tokens", "scored")
    if validation is None:
        cut = len(rows) - count_held_out(len(rows), validation_fraction)
        if cut < 1:
            none = f"of which validation_fraction={validation_fraction} leaves none to train on"
            raise ConfigError(f"arrays: {len(rows)} sequences, {none}")
    else:
        cut = len(rows)
        held_out, held_out_marks = _sequences(validation, validation_scored, "validation", "validation_scored")
        rows, marks = rows + held_out, marks + held_out_marks

    length = max(map(len, rows))
    whole = {"tokens": pad_rows(rows, length), "weights": pad_rows(marks, length)[:, 1:].astype(np.float32)}
    if len({*map(len, rows)}) > 1:
        # The last token of a sequence is a label alone, as it is where nothing is padded.
        whole["valid"] = real_places([row[1:] for row in rows], length - 1)
    train, held_out = ({name: array[part] for name, array in whole.items()} for part in (slice(cut), slice(cut, None)))
    for name, part in {"first": train, "held out": held_out}.items():
        if not part["weights"].any():
            raise ConfigError(f"arrays: of the {len(part['weights'])} sequences {name} no token is scored")
    return Arrays(
        train=train,
        validation=held_out,
        source=source,
        fingerprint=fingerprint_arrays(whole, cut),
        tokenizer=None,
        vocab_size=int(whole["tokens"].max()) + 1,
    )


def _sequences(tokens: Any, scored: Any, name: str, marked: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sequences (L + 1,) and, of each, whether its tokens count."""
    try:
        tokens = list(tokens)
    except TypeError:  # one number
        tokens = []
    if len(tokens) == 0 or np.ndim(tokens[0]) == 0:
        hint = "; cut one running text into rows, or read it by load_data(TextConfig(path=…))" if len(tokens) else ""
        raise ConfigError(f"arrays: {name} are no sequences (N, L + 1){hint}")
    rows = [_row(row, f"sequence {i} of {name}") for i, row in enumerate(tokens)]
    if not isinstance(scored, Iterable | None):
        raise ConfigError(f"arrays: {marked} is {scored!r}, not truth values of the shape of {name}")
    marks = [np.ones(len(row), bool) for row in rows] if scored is None else [np.asarray(row) for row in scored]
    if wrong := [mark for mark in marks if not np.isin(mark, (0, 1)).all()]:
        raise ConfigError(f"arrays: {marked} has {wrong[0][~np.isin(wrong[0], (0, 1))][0]}, which is no truth value")
    if [row.shape for row in rows] != [mark.shape for mark in marks]:
        raise ConfigError(f"arrays: {marked} has not the shape of {name}")
    return rows, marks


def _row(row: Any, name: str) -> np.ndarray:
    """A sequence as an array (L + 1,)."""
    array = np.asarray(row)
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) < 2:
        raise ConfigError(f"arrays: {name} is {array.dtype} {array.shape}, not at least two integers from 0 on")
    if array.min() < 0 or array.max() >= 2**31 - 1:
        raise ConfigError(f"arrays: {name} has {array.min()} to {array.max()}, not integers from 0 to {2**31 - 2}")
    return array
