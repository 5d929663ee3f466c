"""What benchmarks ask of a language model, without the package that asks it."""

import dataclasses
import sys
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.data.tokenizers import CharTokenizer
from transformer.embeddings.embedding import Embedding, Head
from transformer.inference.evaluation import TextModel, batches, how_to_continue, lm_eval_model
from transformer.inference.generate import generate
from transformer.inference.scoring import sliding_log_probabilities
from transformer.inference.tokenwise import Greedy, Sample
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.positions.absolute import Learned

WINDOW, START = 12, 6
TOKENIZER = CharTokenizer(" abcdef")
# Large weights and no tied embeddings: what was read decides what is likely.
CONFIG = ModelConfig(
    vocab_size=7,
    max_length=WINDOW,
    num_layers=1,
    d_model=16,
    mixer=Attention(num_heads=2),
    position=Learned(std=0.4),
    initializer=Normal(0.4),
    embedding=Embedding(initializer=Normal(0.4)),
    head=Head(tied=False),
)
PARAMS, APPLY = split(LanguageModel(CONFIG, key=jax.random.key(0)))
WHOLE = jax.jit(APPLY)
TEXTS = ["ab", "a bad cab", "cab dab bed dad ace", "e", "a bad bee added a bed c"]
"""Of these the third and the last are longer than the model reads at once; the last has two windows exactly."""


@pytest.fixture
def asked():
    return TextModel(APPLY, PARAMS, CONFIG, TOKENIZER, start=START, batch_size=3)


@dataclass(frozen=True)
class Opened(CharTokenizer):
    """Puts a token before every text, as the tokenizers of Llama and Gemma do."""

    opening: np.ndarray = dataclasses.field(default_factory=lambda: np.array([START], np.int32))

    def encode_open(self, text):
        return np.concatenate([self.opening, self.encode(text)]) if text else np.zeros(0, np.int32)


@pytest.mark.parametrize("start", [None, START])
def test_a_tokenizer_that_puts_the_start_there_does_so_once(asked, start):
    own = TextModel(APPLY, PARAMS, CONFIG, Opened(" abcdef"), start=start, batch_size=3)
    for text in TEXTS:
        np.testing.assert_array_equal(own._after_start(text), asked._after_start(text))
    assert own.whole_log_likelihoods(TEXTS) == asked.whole_log_likelihoods(TEXTS)
    assert own.log_likelihoods([("", "ab")]) == asked.log_likelihoods([("", "ab")])
    two = TextModel(APPLY, PARAMS, CONFIG, Opened(" abcdef", opening=np.array([5, START], np.int32)), start=start)
    assert two.whole_log_likelihoods(["ab"]) == [two.log_likelihoods([("", "ab")])[0][0]]


def logs_after(tokens) -> np.ndarray:
    """log p (V,) of the token after these, which are no more than the model reads."""
    logits_BLV = WHOLE(PARAMS, np.pad(np.array(tokens, np.int32), (0, WINDOW - len(tokens)))[None])
    return np.asarray(jax.nn.log_softmax(logits_BLV[0, len(tokens) - 1]))


def by_hand(tokens, labels) -> tuple[float, bool]:
    """The sum and whether greedy decoding finds it, token by token, in the window that ends with the last one."""
    tokens = tokens[-(WINDOW + 1) :]
    each = [(logs_after(tokens[:i]), tokens[i]) for i in range(len(tokens) - labels, len(tokens))]
    return sum(float(logs[token]) for logs, token in each), all(logs.argmax() == token for logs, token in each)


def encoded(text) -> list[int]:
    return [START, *TOKENIZER.encode(text)]


PAIRS = [
    ("a bad", " cab", 4),
    ("a bad ", "cab", 4),
    ("cab dab bed dad", " ace", 4),
    ("", "bad", 3),
    ("a", " bad cab be", 11),
    ("  ", "e", 3),
]


def test_a_continuation_has_the_probability_of_its_tokens_with_the_space_before_it(asked):
    scores = asked.log_likelihoods([pair[:2] for pair in PAIRS])
    for (context, continuation, labels), (log, greedy) in zip(PAIRS, scores, strict=True):
        tokens = encoded(context + continuation)
        expected = by_hand(tokens if not context.strip() else tokens[1:], labels)
        assert log == pytest.approx(expected[0], abs=1e-5)
        assert greedy == expected[1]


def test_greedy_is_what_greedy_decoding_writes(asked):
    (most,) = asked.continuations([("bad", {"max_gen_toks": 3})])
    other = most[:-1] + ("a" if most[-1] != "a" else "b")
    assert [greedy for _, greedy in asked.log_likelihoods([("bad", most), ("bad", other)])] == [True, False]


def test_a_whole_text_is_scored_in_windows_that_do_not_overlap(asked):
    whole = asked.whole_log_likelihoods(TEXTS)
    for text, log in zip(TEXTS, whole, strict=True):
        tokens = encoded(text)
        ends = [*range(WINDOW + 1, len(tokens), WINDOW), len(tokens)]
        begins = [1, *ends[:-1]]
        expected = sum(by_hand(tokens[:b], b - a)[0] for a, b in zip(begins, ends, strict=True))
        assert log == pytest.approx(expected, abs=1e-5)
    exactly = encoded(TEXTS[-1])
    assert len(exactly) == 2 * WINDOW
    exactly = np.array([*exactly, 1], np.int32)
    logs = sliding_log_probabilities(APPLY, PARAMS, exactly, window=WINDOW, stride=WINDOW)
    assert asked.whole_log_likelihoods([TEXTS[-1] + "a"]) == [pytest.approx(float(logs.sum()), abs=1e-5)]


def test_without_a_start_the_first_token_is_given(asked):
    alone = TextModel(APPLY, PARAMS, CONFIG, TOKENIZER)
    expected = [by_hand(encoded(text)[1:], len(text) - 1)[0] for text in ("ab", "a bad cab")]
    assert alone.whole_log_likelihoods(["ab", "a bad cab", "e", ""]) == pytest.approx([*expected, 0, 0], abs=1e-5)
    with pytest.raises(ConfigError, match=r"a context is empty; give the token before a text, start="):
        alone.log_likelihoods([("", "ab")])
    with pytest.raises(ConfigError, match="a context is empty"):
        alone.continuations([("", {})])


def test_what_is_written_is_what_is_decoded_and_ends_at_the_first_end(asked):
    prompts = ["a", "bad", ""]
    made = asked.continuations([(prompt, {"max_gen_toks": 5}) for prompt in prompts])
    for prompt, text in zip(prompts, made, strict=True):
        tokens = np.array(encoded(prompt) if not prompt else TOKENIZER.encode(prompt))
        expected = generate(APPLY, PARAMS, tokens[None], num_tokens=5).tokens_BT[0]
        assert text == TOKENIZER.decode(expected)
    whole = made[1]
    first = min(whole.index(end) for end in (whole[2], whole[3:]))
    cut = asked.continuations([("bad", {"max_gen_toks": 5, "until": [whole[3:], whole[2], "", "zz"]})])
    assert cut == [whole[:first]]
    token = int(TOKENIZER.encode(whole[2])[0])
    stopped = TextModel(APPLY, PARAMS, CONFIG, TOKENIZER, stop=token)
    assert stopped.continuations([("bad", {"max_gen_toks": 5})]) == [whole[: whole.index(whole[2])]]


def test_a_long_text_is_written_piece_by_piece(asked):
    """Half of `max_length` at a time, after the last tokens before it."""
    tokens = TOKENIZER.encode("a bad cab bed")
    for _ in range(4):
        read = tokens[-(WINDOW - WINDOW // 2 + 1) :]
        new = generate(APPLY, PARAMS, np.asarray(read)[None], num_tokens=WINDOW // 2).tokens_BT[0]
        tokens = np.concatenate([tokens, new])
    text = TOKENIZER.decode(tokens[13:])
    how = {"max_gen_toks": 20, "until": "bba"}
    assert "bba" not in text
    made = asked.continuations([("c", how), ("a bad cab bed", how), ("a", {"max_gen_toks": 7})])
    assert (made[0], made[1], len(made[2])) == ("", text[:20], 7), "the first ends in its first piece"


def test_requests_with_other_options_do_not_mix(asked):
    greedy, hot = {"max_gen_toks": 8}, {"max_gen_toks": 8, "do_sample": True, "temperature": 9.0}
    made = asked.continuations([("a", greedy), ("a", hot), ("a", hot), ("a", greedy)])
    assert made[0] == made[3]
    assert len({*made}) == 3
    assert made == asked.continuations([("a", greedy), ("a", hot), ("a", hot), ("a", greedy)])


@pytest.mark.parametrize(
    ("options", "strategy", "until"),
    [
        ({}, Greedy(), ()),
        ({"until": "\n", "do_sample": False, "temperature": 1.0}, Greedy(), ("\n",)),
        ({"until": ["a", "b"], "temperature": 0.0, "do_sample": True}, Greedy(), ("a", "b")),
        ({"until": None, "temperature": None, "top_k": None}, Greedy(), ()),
        ({"temperature": 0.7}, Sample(temperature=0.7), ()),
        ({"do_sample": True, "top_p": 0.9, "top_k": 4}, Sample(top_p=0.9, top_k=4), ()),
    ],
)
def test_options_of_tasks(options, strategy, until):
    assert how_to_continue(options) == (strategy, 256, until)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"max_gen_tokens": 3}, "unknown option 'max_gen_tokens'; did you mean 'max_gen_toks'"),
        ({"num_beams": 4}, "unknown option 'num_beams'"),
        ({"temperature": "0.5"}, "temperature '0.5' is not a number"),
        ({"temperature": -0.7}, "temperature -0.7 is not a number from 0 on"),
        ({"do_sample": "no"}, "do_sample 'no' is neither true nor false"),
        ({"until": 5}, "until 5 is no text, and no list of texts"),
        ({"until": ["a", 5]}, r"until \['a', 5\] is no text"),
        ({"do_sample": True, "top_k": 5.5}, "generation_kwargs: top_k: 5.5 is not int"),
        ({"max_gen_toks": 0}, "max_gen_toks 0 is not a positive number"),
        ({"temperature": 1.0, "top_p": 2.0}, r"sample.top_p: 2.0 is not in \(0, 1\]"),
    ],
)
def test_options_that_cannot_be(options, line):
    with pytest.raises(ConfigError, match=line):
        how_to_continue(options)


def test_few_shapes_hold_all_sequences():
    """Powers of two up to the longest, always as many rows."""
    sequences = [np.full(length, length, np.int32) for length in (70, 1, 33, 100, 32, 2, 64, 40, 5)]
    found = list(batches(sequences, 100, 2))
    assert [tokens_BL.shape for _, tokens_BL, _ in found] == [(2, 100)] * 1 + [(2, 64)] * 2 + [(2, 32)] * 2
    assert sorted(i for indices, _, _ in found for i in indices) == list(range(9))
    for indices, tokens_BL, lengths_B in found:
        for row, i in enumerate(indices):
            assert tokens_BL[row, : lengths_B[row]].tolist() == sequences[i].tolist()
        assert (lengths_B[len(indices) :] == 1).all()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": CONFIG.replace(causal=False)}, "not that of a causal language model"),
        ({"start": 7}, r"start 7 at \(\) is not in \[0, 7\)"),
        ({"stop": -1}, r"stop -1 at \(\) is not in \[0, 7\)"),
        ({"batch_size": 0}, "batch_size 0 is not a positive number"),
    ],
)
def test_what_is_no_model_for_benchmarks(changes, line):
    with pytest.raises(ConfigError, match=line):
        lm_eval_model(**{"apply": APPLY, "params": PARAMS, "model": CONFIG, "tokenizer": TOKENIZER} | changes)


def test_texts_that_cannot_be_asked(asked):
    with pytest.raises(ConfigError, match="'' has no token of its own after 'bad'"):
        asked.log_likelihoods([("bad", "")])
    with pytest.raises(ConfigError, match="no token for 'z'"):
        asked.log_likelihoods([("bad", " z")])
    larger = TextModel(APPLY, PARAMS, CONFIG, CharTokenizer(" abcdefgh"), start=START)
    with pytest.raises(ConfigError, match=r"token 8 at \(1,\) is not in \[0, 7\)"):
        larger.whole_log_likelihoods(["ah"])


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(ConfigError, match=r"needs lm-eval: pip install 'transformer\[evaluation\]'"):
        lm_eval_model(APPLY, PARAMS, CONFIG, TOKENIZER)


def test_more_of_the_likeliest_than_there_are_tokens_are_all(asked):
    """A task does not know how many there are."""
    how = {"max_gen_toks": 8, "do_sample": True, "temperature": 9.0}
    many, all_of_them = (asked.continuations([("a", how | more)]) for more in ({"top_k": 50}, {}))
    assert many == all_of_them
