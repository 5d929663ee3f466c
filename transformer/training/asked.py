"""What a trained run answers: it continues, translates, classifies, tags and scores."""

import abc
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.core.checks import check_kind, check_seed
from transformer.core.errors import ConfigError
from transformer.data.dataset import pad_rows
from transformer.data.pairs import with_end
from transformer.data.tagged import word_tokens
from transformer.data.tokenizers import END, START, Tokenizer, encode_open
from transformer.inference.evaluation import lm_eval_model
from transformer.inference.generate import generate
from transformer.inference.strategies import Strategy
from transformer.inference.text import Beyond, continuation, token_log_probabilities
from transformer.inference.tokenwise import GREEDY, Sample
from transformer.models.classifier import ClassifierConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.pooling import PerToken
from transformer.training.trained import TrainedRun

WARM = Sample(temperature=0.8)


class AskedRun(TrainedRun, abc.ABC):
    """A trained run with the tokenizers and the held-out part of its data."""

    @property
    @abc.abstractmethod
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizers of its data, by the names they have there."""

    @property
    @abc.abstractmethod
    def classes(self) -> tuple[str, ...]:
        """The names of the classes of its data; empty where there are none."""

    @property
    @abc.abstractmethod
    def _held_out(self) -> Mapping[str, np.ndarray]:
        """Arrays of the held-out part of its data."""

    def generate(
        self,
        prompt: str,
        *,
        num_tokens: int | None = None,
        strategy: Strategy = WARM,
        seed: int = 0,
        stop: int | None = None,
        beyond: Beyond = "slide",
        replica: int | None = None,
    ) -> str:
        """A text with its continuation, of a causal language model; `transformer.generate` continues tokens.

        Args:
          prompt: the text to continue.
          num_tokens: the largest number of tokens to add; None: 200, or after a question of a task as many as there are
            after it in the longest example.
          strategy: `Greedy()`, `Sample(…)` or `Beam(…)`.
          seed: of the random choices.
          stop: the token that ends the text; None: of a task `</s>`, of a text none.
          beyond: past `max_length` "slide" goes on by reading the last tokens again, half of `max_length` at a time;
            "extrapolate" reads on, where positions have no end; and "refuse" raises an error.
          replica: which one continues it; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is no causal language model of text, the prompt is empty or has a character that the
            tokenizer does not know, the seed is not in [0, 2³¹), or the text is longer than `beyond` allows.
        """
        check_seed(seed)
        tokenizer, tokens_L = self._read("generate", prompt)
        example = self.config.data.example_length
        if num_tokens is None:
            num_tokens = 200 if example is None else max(1, example - len(tokens_L))
        if stop is None and example is not None:
            stop = END
        prefix, key = self.config.objective.reads_prefixes, jax.random.key(seed)
        more_T = continuation(
            self.apply,
            self.params(replica),
            self.config.model.max_length,
            tokens_L,
            key=key,
            prefix=prefix,
            num_tokens=num_tokens,
            strategy=strategy,
            stop=stop,
            beyond=beyond,
        )
        return tokenizer.decode(np.concatenate([tokens_L, more_T]))

    def translate(
        self,
        source: str,
        *,
        num_tokens: int | None = None,
        strategy: Strategy = GREEDY,
        seed: int = 0,
        replica: int | None = None,
    ) -> str:
        """The text that an encoder–decoder of pairs of texts makes of a source.

        Args:
          source: a text, as one of its training.
          num_tokens: the largest number of tokens to write; None: 50 and twice as many as the source has, up to
            `max_length`.
          strategy: `Greedy()`, `Sample(…)` or `Beam(…)`.
          seed: of the random choices.
          replica: which one translates; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is none of pairs of texts, the source is too long or has a character that the
            tokenizer does not know, or the seed is not in [0, 2³¹).
        """
        model = self.config.model
        if not isinstance(model, EncoderDecoderConfig) or "source_tokenizer" not in self.tokenizers:
            raise ConfigError(f"translate: {self.workdir} holds no encoder–decoder of pairs of texts")
        check_kind(source, str, "translate")
        check_seed(seed)
        if not source.strip():
            raise ConfigError("translate: the source has no text")
        source_S = with_end(self.tokenizers["source_tokenizer"], source)
        if len(source_S) > model.max_source_length:
            raise ConfigError(
                f"translate: the source has {len(source_S)} tokens, its end included, more than max_source_length "
                f"{model.max_source_length}"
            )
        source_1S, valid_1S = _row(source_S, model.max_source_length)
        inputs = {"source_BS": source_1S, "source_valid_BS": valid_1S}
        limit = min(model.max_length, 2 * len(source_S) + 50) if num_tokens is None else num_tokens
        start_11, key = jnp.full((1, 1), START, jnp.int32), jax.random.key(seed)
        made = generate(
            self.apply,
            self.params(replica),
            start_11,
            num_tokens=limit,
            key=key,
            strategy=strategy,
            stop=END,
            inputs=inputs,
        )
        return self.tokenizers["tokenizer"].decode(np.asarray(made.tokens_BT[0]))

    def classify(self, text: str, *, replica: int | None = None) -> dict[str, float]:
        """The probability of each class of a text, the likeliest first, by a classifier of texts.

        Args:
          text: a text, as one of its training.
          replica: which one reads it; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is no classifier of whole texts, or the text has no tokens, too many, or a character that
            the tokenizer does not know.
        """
        if not (self._classifies and "tokenizer" in self.tokenizers):
            raise ConfigError(f"classify: {self.workdir} holds no classifier of texts")
        tokens_L = self._encoded("classify", self.tokenizers["tokenizer"].encode, text)
        inputs_1L, valid_1L = _row(tokens_L, self.config.model.max_length)
        logits_1C = self.apply(self.params(replica), inputs_1L, valid_BL=valid_1L)
        shares = np.asarray(jax.nn.softmax(logits_1C[0, : len(self.classes)])).tolist()
        return dict(sorted(zip(self.classes, shares, strict=True), key=lambda each: -each[1]))

    def tag(self, text: str, *, replica: int | None = None) -> list[tuple[str, str]]:
        """The words of a text, what spaces stand between, each with its likeliest class, by a classifier of words.

        Args:
          text: a text, its words as in training.
          replica: which one reads it; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is no classifier of words, or the text has no words, too many tokens, or what the
            tokenizer does not know.
        """
        model = self.config.model
        tags = isinstance(model, ClassifierConfig) and isinstance(model.pooling, PerToken)
        if not (tags and "tokenizer" in self.tokenizers):
            raise ConfigError(f"tag: {self.workdir} holds no classifier of words")
        check_kind(text, str, "tag")
        if not (words := text.split()):
            raise ConfigError("tag: the text has no words")
        tokens_L, _, first_L = word_tokens(words, self.tokenizers["tokenizer"])
        inputs_1L, valid_1L = _row(tokens_L, model.max_length)
        logits_1LC = np.asarray(self.apply(self.params(replica), inputs_1L, valid_BL=valid_1L))
        given_W = logits_1LC[0, : len(tokens_L), : len(self.classes)].argmax(-1)[first_L]
        return [(word, self.classes[given]) for word, given in zip(words, given_W, strict=True)]

    def confusion(self, *, replica: int | None = None) -> np.ndarray:
        """(C, C) how many held-out texts or images of the class of a row are given that of a column.

        Those of texts are in the order of `classes`, those of images in that of their numbers. The recall of each class
        is the diagonal over the sums of rows, its precision that over the sums of columns. A model may have more
        classes than the texts: for these none is taken, though its accuracy counts them.

        Args:
          replica: which one reads them; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is no classifier of whole texts or of images.
        """
        model, params, held_out = self.config.model, self.params(replica), self._held_out
        if not self._classifies:
            raise ConfigError(f"confusion: {self.workdir} holds no classifier of texts or images")
        assert isinstance(model, ClassifierConfig)
        count = len(self.classes) or model.num_classes or 0
        read = jax.jit(lambda inputs, more: self.apply(params, inputs, **more)[:, :count].argmax(-1))
        more = {"valid_BL": held_out["valid"]} if "valid" in held_out else {}
        parts = [slice(first, first + 256) for first in range(0, len(held_out["labels"]), 256)]
        given_N = np.concatenate(
            [read(held_out["inputs"][part], {name: rows[part] for name, rows in more.items()}) for part in parts]
        )
        counts = np.zeros((count, count), np.int64)
        np.add.at(counts, (held_out["labels"], given_N), 1)
        return counts

    def score(self, text: str, *, replica: int | None = None) -> np.ndarray:
        """(L - 1,) log-probability of each token of a text but the first, given those before it, in nats.

        The mean loss is `-run.score(text).mean()`. A text of more than `max_length` tokens is read in windows of that
        many, half of it apart.

        Args:
          text: at least two tokens.
          replica: which one reads it; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is no causal language model of text, or is one of prefixes, or the text is too short or
            has a character that the tokenizer does not know.
        """
        _, tokens_L = self._read("score", text)
        if self.config.objective.reads_prefixes:
            raise ConfigError(f"score: {self.workdir} was trained with prefixes, and a text marks none")
        return token_log_probabilities(self.apply, self.params(replica), self.config.model.max_length, tokens_L)

    def lm_eval_model(
        self, *, start: int | None = None, stop: int | None = None, batch_size: int = 8, replica: int | None = None
    ) -> Any:
        """The model for `lm_eval.simple_evaluate(model=…)`; needs the extra `evaluation`.

        Args:
          start: as in `transformer.lm_eval_model`.
          stop: likewise.
          batch_size: likewise.
          replica: which one is asked; None: the one with the lowest loss.

        Raises:
          ConfigError: the run is no causal language model of text, or is one of prefixes, or lm-eval is missing.
        """
        tokenizer = self._tokenizer("lm_eval_model")
        if self.config.objective.reads_prefixes:
            raise ConfigError(f"lm_eval_model: {self.workdir} was trained with prefixes, which benchmarks do not mark")
        return lm_eval_model(
            self.apply,
            self.params(replica),
            self.config.model,
            tokenizer,
            start=start,
            stop=stop,
            batch_size=batch_size,
        )

    @property
    def _classifies(self) -> bool:
        """Whether this is a classifier of whole texts or images."""
        model = self.config.model
        return isinstance(model, ClassifierConfig) and not isinstance(model.pooling, PerToken)

    def _read(self, caller: str, text: str) -> tuple[Tokenizer, np.ndarray]:
        """(tokenizer, (L,) tokens of a text) of a causal language model."""
        tokenizer = self._tokenizer(caller)
        return tokenizer, self._encoded(caller, functools.partial(encode_open, tokenizer), text)

    def _encoded(self, caller: str, encode: Callable[[str], np.ndarray], text: str) -> np.ndarray:
        """(L,) tokens of a text, L at least 1."""
        check_kind(text, str, caller)
        if len(tokens_L := encode(text)) == 0:
            raise ConfigError(f"{caller}: the text has no tokens; a model reads at least one")
        return tokens_L

    def _tokenizer(self, caller: str) -> Tokenizer:
        """The tokenizer of a causal language model."""
        model = self.config.model
        if model.kind != "tokens" or not model.causal or "tokenizer" not in self.tokenizers:
            ways = {
                "classify(text) is for a classifier": self._classifies and "tokenizer" in self.tokenizers,
                "tag(text) is for a classifier of words": isinstance(model, ClassifierConfig) and not self._classifies,
                "translate(source) is for pairs of texts": "source_tokenizer" in self.tokenizers,
                "generate(run.apply, run.params(), tokens) is for numbers": model.kind == "tokens" and model.causal,
            }
            hint = next((f"; {way}" for way, fits in ways.items() if fits), "")
            raise ConfigError(f"{caller}: {self.workdir} holds no causal language model of text{hint}")
        return self.tokenizers["tokenizer"]


def _row(tokens_L: np.ndarray, longest: int) -> tuple[jax.Array, jax.Array]:
    """(tokens as a row, which of them are real): a multiple of 8 where that fits, so that few programs are made."""
    length = min(-(-len(tokens_L) // 8) * 8, max(longest, len(tokens_L)))
    return jnp.asarray(pad_rows([tokens_L], length)), jnp.arange(length)[None] < len(tokens_L)
