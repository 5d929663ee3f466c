"""Standard benchmarks: a causal language model as EleutherAI's lm-evaluation-harness asks it.

A benchmark asks three things: how likely a text is after another one, how likely a whole text is, and how a text goes
on. Texts are read in batches of few sizes, so that few programs are compiled, and in windows of `max_length` tokens.
"""

import importlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.arrays import check_ids
from transformer.core.checks import check_fields, check_kind
from transformer.core.errors import ConfigError, nearest
from transformer.core.modules import Apply, Params
from transformer.data.dataset import pad_rows
from transformer.data.tokenizers import Tokenizer, encode_open
from transformer.inference.generate import generate
from transformer.inference.prompt import vocabularies
from transformer.inference.scoring import label_log_probabilities
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import GREEDY, Sample
from transformer.models.config import ModelConfig

SHORTEST = 32
"""Tokens; texts of fewer are padded to as many."""
PIECE = 64
"""Tokens that are chosen before the texts are searched for what ends them."""
MAX_TOKENS = 256
"""Tokens that are chosen where a task does not say how many; the harness has the same number."""
OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
OPTIONS = ("until", "max_gen_toks", "do_sample", *OF_SAMPLING)
"""What a task may say in its `generation_kwargs`."""


def lm_eval_model(
    apply: Apply,
    params: Params,
    model: ModelConfig,
    tokenizer: Tokenizer,
    *,
    start: int | None = None,
    stop: int | None = None,
    batch_size: int = 8,
) -> Any:
    """An `lm_eval.api.model.LM` for `lm_eval.simple_evaluate(model=…, tasks=[…])`; needs the extra `evaluation`.

    A run has a method of this name. Contexts are encoded together with what follows, whose first token takes the spaces
    at their end, and are cut on the left where both are longer than `max_length`, as models of the harness do.

    Args:
      apply: a pure causal language model.
      params: its parameters.
      model: its config.
      tokenizer: makes tokens of texts.
      start: the token before a text that has none before it, such as the one between the documents of its training,
        unless the tokenizer puts it there; None: the first token of a text is not scored, and where the tokenizer puts
        none before it, an empty context is refused.
      stop: the token that ends a text that the model writes.
      batch_size: texts that are read at once.

    Raises:
      ConfigError: the config is not that of a causal language model, `start` or `stop` is none of its tokens,
        `batch_size` is not positive, or lm-eval is missing.
    """
    check_kind(model, ModelConfig, "lm_eval_model")
    if model.kind != "tokens" or not model.causal:
        raise ConfigError("lm_eval_model: the config is not that of a causal language model")
    for name, token in {"start": start, "stop": stop}.items():
        if token is not None:
            check_ids(np.array(token), vocabularies(apply, params)["prompt"], f"lm_eval_model: {name}")
    if batch_size < 1:
        raise ConfigError(f"lm_eval_model: batch_size {batch_size} is not a positive number")
    try:
        LM: Any = importlib.import_module("lm_eval.api.model").LM
    except ImportError:
        raise ConfigError("lm_eval_model: needs lm-eval: pip install 'transformer[evaluation]'") from None
    asked = TextModel(apply, params, model, tokenizer, start, stop, batch_size)

    class TransformerLM(LM):
        def loglikelihood(self, requests) -> list[tuple[float, bool]]:
            return asked.log_likelihoods([request.args for request in requests])

        def loglikelihood_rolling(self, requests) -> list[float]:
            return asked.whole_log_likelihoods([text for (text,) in (request.args for request in requests)])

        def generate_until(self, requests) -> list[str]:
            return asked.continuations([request.args for request in requests])

    return TransformerLM()


@dataclass(frozen=True)
class TextModel:
    """A causal language model with its tokenizer; fields as the arguments of `lm_eval_model`."""

    apply: Apply
    params: Params
    model: ModelConfig
    tokenizer: Tokenizer
    start: int | None = None
    stop: int | None = None
    batch_size: int = 8

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """(log P in nats, whether greedy decoding would write it) of the second text of each pair after the first."""
        return self._scores([self._divided(*pair) for pair in pairs])

    def whole_log_likelihoods(self, texts: Sequence[str]) -> list[float]:
        """log P of each text, in nats: every token is a label once, in windows whose labels do not overlap."""
        tokens, given = [self._after_start(text) for text in texts], max(1, len(self._after_start("")))
        return [log for log, _ in self._scores([(tokens_L, max(0, len(tokens_L) - given)) for tokens_L in tokens])]

    def continuations(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
        """What is written after each context, up to the first of the texts that its options name as an end.

        Where positions end at `max_length`, the last tokens are read again, at most `PIECE` chosen ones before.

        Raises:
          ConfigError: an option is not known, or a context is empty and there is no `start`.
        """
        hows = [how_to_continue(options) for _, options in requests]
        made: dict[int, str] = {}
        for how in dict.fromkeys(hows):
            indices = [i for i, each in enumerate(hows) if each == how]
            prompts = [self._prompt(requests[i][0]) for i in indices]
            made |= zip(indices, self._continued(prompts, *how), strict=True)
        return [made[i] for i in range(len(requests))]

    def _encoded(self, text: str) -> np.ndarray:
        """The tokens of a text, (L,)."""
        tokens_L = encode_open(self.tokenizer, text)
        check_ids(tokens_L, vocabularies(self.apply, self.params)["prompt"], "lm_eval_model: token")
        return tokens_L

    def _after_start(self, text: str) -> np.ndarray:
        """The tokens of a text after what the tokenizer puts before it, or else after `start`, where there is one."""
        tokens_L, opening_L = self._encoded(text), getattr(self.tokenizer, "opening", np.zeros(0, np.int32))
        tokens_L = tokens_L if len(tokens_L) else opening_L
        if self.start is None or self.start in opening_L:
            return tokens_L
        return np.concatenate([np.array([self.start], np.int32), tokens_L])

    def _prompt(self, context: str) -> np.ndarray:
        """The tokens of a context, at least one."""
        tokens_L = self._encoded(context) if context else self._after_start(context)
        if len(tokens_L) == 0:
            raise ConfigError("lm_eval_model: a context is empty; give the token before a text, start=…")
        return tokens_L

    def _divided(self, context: str, continuation: str) -> tuple[np.ndarray, int]:
        """(tokens of both texts, how many of them are labels). A space belongs to the word after it."""
        read = len(self._prompt(context.rstrip()))
        whole = context + continuation
        tokens_L = self._encoded(whole) if context.rstrip() else self._after_start(whole)
        if len(tokens_L) <= read:
            raise ConfigError(f"lm_eval_model: {continuation!r} has no token of its own after {context[-20:]!r}")
        return tokens_L, len(tokens_L) - read

    def _scores(self, asked: Sequence[tuple[np.ndarray, int]]) -> list[tuple[float, bool]]:
        """(log P, whether each is the most likely token) of the last tokens of sequences, so many of each."""
        cut = [(i, *window) for i, each in enumerate(asked) for window in windows(*each, self.model.max_length)]
        logs, greedy = np.zeros(len(asked)), np.ones(len(asked), bool)
        inputs = [tokens_L[:-1] for _, tokens_L, _ in cut]
        for indices, inputs_BL, lengths_B in batches(inputs, self.model.max_length, self.batch_size):
            labels_BL = pad_rows([cut[i][1][1:] for i in indices], inputs_BL.shape[1], self.batch_size)
            log_BL, greedy_BL = map(np.asarray, _read(self.apply, self.params, inputs_BL, labels_BL))
            for row, index in enumerate(indices):
                i, _, count = cut[index]
                last = slice(lengths_B[row] - count, lengths_B[row])
                logs[i] += log_BL[row, last].sum(dtype=np.float64)
                greedy[i] &= greedy_BL[row, last].all()
        return list(zip(logs.tolist(), greedy.tolist(), strict=True))

    def _continued(
        self, prompts: Sequence[np.ndarray], strategy: Strategy, num_tokens: int, until: Sequence[str]
    ) -> list[str]:
        """What follows each prompt, piece by piece until all have ended."""
        size = vocabularies(self.apply, self.params)["prompt"]
        if isinstance(strategy, Sample) and strategy.top_k is not None and strategy.top_k > size:
            strategy = replace(strategy, top_k=None)  # a task does not know how many tokens there are
        room = max(1, min(num_tokens, PIECE, self.model.max_length // 2))
        longest, key = self.model.max_length - room + 1, jax.random.key(0)
        made, texts, going = [np.zeros(0, np.int32)] * len(prompts), [""] * len(prompts), list(range(len(prompts)))
        while going:
            read = [np.concatenate([prompts[i], made[i]])[-longest:] for i in going]
            ended: set[int] = set()
            for indices, tokens_BL, lengths_B in batches(read, longest, self.batch_size):
                key, draw = jax.random.split(key)
                new = generate(
                    self.apply,
                    self.params,
                    jnp.asarray(tokens_BL),
                    lengths_B=jnp.asarray(lengths_B),
                    num_tokens=room,
                    strategy=strategy,
                    stop=self.stop,
                    key=draw,
                )
                new_BT, counts_B = np.asarray(new.tokens_BT), np.asarray(new.lengths_B)
                for row, i in enumerate(going[index] for index in indices):
                    made[i] = np.concatenate([made[i], new_BT[row, : counts_B[row]]])[:num_tokens]
                    texts[i], over = self._text(made[i], until)
                    ended |= {i} if over or len(made[i]) == num_tokens else set()
            going = [i for i in going if i not in ended]
        return texts

    def _text(self, tokens_T: np.ndarray, until: Sequence[str]) -> tuple[str, bool]:
        """(the text of chosen tokens before its end, whether it has ended)."""
        stopped = self.stop is not None and tokens_T[-1] == self.stop
        text = self.tokenizer.decode(tokens_T[:-1] if stopped else tokens_T)
        ends = [text.index(end) for end in until if end in text]
        return text[: min(ends)] if ends else text, stopped or bool(ends)


@partial(jax.jit, static_argnames="apply")
def _read(apply: Apply, params: Params, inputs_BL: jax.Array, labels_BL: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(log p of each label, whether it is the most likely token), (B, L)."""
    logits_BLV = apply(params, inputs_BL)
    return label_log_probabilities(logits_BLV, labels_BL), logits_BLV.argmax(-1) == labels_BL


def windows(tokens_L: np.ndarray, labels: int, length: int) -> list[tuple[np.ndarray, int]]:
    """(tokens, how many of the last ones are labels) of windows in which each of the last `labels` tokens is one once.

    Each has up to `length` labels, and before its last one `length` tokens, or all that there are.
    """
    first, end = len(tokens_L) - labels, len(tokens_L)
    starts = range(first, end, length)
    ends = [min(start + length, end) for start in starts]
    return [(tokens_L[max(0, b - length - 1) : b], b - a) for a, b in zip(starts, ends, strict=True)]


def batches(
    sequences: Sequence[np.ndarray], longest: int, batch_size: int
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """(indices, tokens (B, L), lengths (B,)) of sequences of similar length; the longest come first.

    L is a power of two, or `longest`. B is always `batch_size`: what is missing are rows of one token.
    """

    def size(i: int) -> int:
        return min(longest, max(SHORTEST, 1 << (len(sequences[i]) - 1).bit_length()))

    for L, group in itertools.groupby(sorted(range(len(sequences)), key=size, reverse=True), size):
        similar = list(group)
        for at in range(0, len(similar), batch_size):
            indices = similar[at : at + batch_size]
            lengths_B = np.ones(batch_size, np.int32)
            lengths_B[: len(indices)] = [len(sequences[i]) for i in indices]
            yield indices, pad_rows([sequences[i] for i in indices], L, batch_size), lengths_B


def how_to_continue(options: Mapping[str, Any]) -> tuple[Strategy, int, tuple[str, ...]]:
    """(strategy, number of tokens, texts that end it) of a task's `generation_kwargs`.

    Without `do_sample` a temperature above 0 is one to sample with; at 0, as without either, decoding is greedy.

    Raises:
      ConfigError: an option is not known, or has no such value.
    """
    for name in options:
        if name not in OPTIONS:
            raise ConfigError(f"generation_kwargs: unknown option {name!r}{nearest(name, OPTIONS)}")
    options = {name: value for name, value in options.items() if value is not None}
    temperature = options.get("temperature", 0)
    if type(temperature) not in (int, float) or not 0 <= temperature < math.inf:
        raise ConfigError(f"generation_kwargs: temperature {temperature!r} is not a number from 0 on")
    num_tokens = options.get("max_gen_toks", MAX_TOKENS)
    if type(num_tokens) is not int or num_tokens < 1:
        raise ConfigError(f"generation_kwargs: max_gen_toks {num_tokens!r} is not a positive number")
    until = options.get("until", ())
    if not isinstance(until, str | list | tuple) or not all(isinstance(end, str) for end in until):
        raise ConfigError(f"generation_kwargs: until {until!r} is no text, and no list of texts")
    until = (until,) if isinstance(until, str) else tuple(end for end in until if end)
    sampled = options.get("do_sample", temperature > 0)
    if type(sampled) is not bool:
        raise ConfigError(f"generation_kwargs: do_sample {sampled!r} is neither true nor false")
    if not sampled or options.get("temperature") == 0:
        return GREEDY, num_tokens, until
    strategy = Sample(**{name: options[name] for name in OF_SAMPLING if name in options})
    check_fields(strategy, "generation_kwargs: ")
    return strategy, num_tokens, until
