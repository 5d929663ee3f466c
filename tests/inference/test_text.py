"""Tokens past the length of training: windows that read the last ones again."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding, Head
from transformer.inference.processors import Forbidden, MinimumLength, NoRepeat
from transformer.inference.text import continuation, token_log_probabilities
from transformer.inference.tokenwise import Greedy, Sample
from transformer.mixers.attention.attention import Attention
from transformer.models.config import ModelConfig
from transformer.models.language_model import LanguageModel
from transformer.positions.absolute import Learned
from transformer.positions.rotary import RoPE
from transformer.testing.subject import small

LENGTH = 6
# Large weights and no tied embeddings: what was read decides what is likely.
ENDS = ModelConfig(
    vocab_size=8,
    max_length=LENGTH,
    num_layers=1,
    d_model=16,
    mixer=Attention(num_heads=2),
    position=Learned(),
    initializer=Normal(0.4),
    embedding=Embedding(initializer=Normal(0.4)),
    head=Head(tied=False),
)
PROMPT = np.array([3, 1, 4, 1, 5], np.int32)
HOW = {"strategy": Greedy(), "key": jax.random.key(0)}


@pytest.fixture(scope="module")
def model():
    params, apply = split(LanguageModel(ENDS, key=jax.random.key(0)))
    return apply, params


def next_token(model, tokens) -> int:
    apply, params = model
    return int(apply(params, np.array(tokens, np.int32)[None])[0, -1].argmax())


def test_windows_read_the_last_tokens_again(model):
    """The first as long as all fits; each other begins with `max_length` - `max_length` // 2 + 1, and is filled."""
    expected = list(PROMPT)
    while len(expected) < len(PROMPT) + 8:
        room = LENGTH // 2 if len(expected) > LENGTH else LENGTH - len(expected) + 1
        start = len(expected) - (LENGTH - room + 1)
        for _ in range(room):
            expected.append(next_token(model, expected[start:]))
    made = continuation(*model, ENDS.max_length, PROMPT, num_tokens=8, **HOW)
    assert made.tolist() == [int(token) for token in expected[len(PROMPT) :][:8]]
    assert len(set(made.tolist())) > 2


def test_positions_without_an_end_are_read_on_only_where_that_is_asked(model):
    """A model of six tokens has not seen a seventh place, whatever its positions are defined for."""
    config = ENDS.replace(position=RoPE())
    params, apply = split(LanguageModel(config, key=jax.random.key(0)))
    windows = continuation(apply, params, config.max_length, PROMPT, num_tokens=20, **HOW)
    on = continuation(apply, params, config.max_length, PROMPT, num_tokens=20, beyond="extrapolate", **HOW)
    expected = list(PROMPT)
    for _ in range(20):
        expected.append(next_token((apply, params), expected))
    assert on.tolist() == [int(token) for token in expected[len(PROMPT) :]]
    fitting = LENGTH - len(PROMPT) + 1
    assert windows[:fitting].tolist() == on[:fitting].tolist()
    assert windows.tolist() != on.tolist()
    with pytest.raises(ConfigError, match=r"^generate: 12 tokens are read, more than max_length 6; use slide$"):
        continuation(apply, params, config.max_length, PROMPT, num_tokens=8, beyond="refuse", **HOW)


def test_what_fits_is_read_once_and_more_may_be_refused(model):
    fits = continuation(*model, ENDS.max_length, PROMPT, num_tokens=2, beyond="refuse", **HOW)
    first = next_token(model, PROMPT)
    assert fits.tolist() == [first, next_token(model, [*PROMPT, first])]
    assert continuation(*model, ENDS.max_length, PROMPT, num_tokens=2, **HOW).tolist() == fits.tolist()
    with pytest.raises(ConfigError, match="max_length"):
        continuation(*model, ENDS.max_length, PROMPT, num_tokens=3, beyond="refuse", **HOW)
    with pytest.raises(ConfigError, match="beyond: unknown value 'crop'"):
        continuation(*model, ENDS.max_length, PROMPT, num_tokens=3, beyond="crop", **HOW)
    with pytest.raises(ConfigError, match="num_tokens 0 is not a positive number"):
        continuation(*model, ENDS.max_length, PROMPT, num_tokens=0, **HOW)


def test_processors_see_all_of_the_text(model):
    """Pairs of tokens do not come again though another window has them, and chosen tokens are counted over all."""
    once = HOW | {"strategy": Greedy(processors=(NoRepeat(2),))}
    text = [*PROMPT, *continuation(*model, ENDS.max_length, PROMPT, num_tokens=20, **once).tolist()]
    pairs = list(pairwise(text))
    assert len(pairs) == 24
    assert len({*pairs}) == len(pairs)
    # Of two tokens alone, one of which ends the text as soon as it may.
    stop, others = 0, Forbidden(tuple(range(2, 8)))
    for length in (4, 7):
        late = HOW | {"strategy": Sample(processors=(MinimumLength(length), others)), "key": jax.random.key(1)}
        made = continuation(*model, ENDS.max_length, PROMPT, num_tokens=40, stop=stop, **late).tolist()
        assert made[:length] == [1] * length
        assert length < len(made) < 40


def test_the_shortest_text_may_be_longer_than_a_window_and_no_longer_than_the_whole(model):
    how = HOW | {"strategy": Greedy(processors=(MinimumLength(20),)), "stop": 0}
    assert len(continuation(*model, ENDS.max_length, PROMPT, num_tokens=20, **how)) == 20
    with pytest.raises(ConfigError, match=r"^generate: minimum_length\(.*\) asks for more than num_tokens, 19$"):
        continuation(*model, ENDS.max_length, PROMPT, num_tokens=19, **how)


def test_a_stop_token_ends_the_windows(model):
    whole = continuation(*model, ENDS.max_length, PROMPT, num_tokens=8, **HOW).tolist()
    stop = whole[4]
    made = continuation(*model, ENDS.max_length, PROMPT, num_tokens=8, stop=stop, **HOW).tolist()
    assert made == whole[: whole.index(stop) + 1]


@pytest.mark.parametrize("length", [2, LENGTH + 1, 20])
def test_every_token_but_the_first_has_a_probability(model, length):
    """In its window, of which the later ones begin half of `max_length` further on."""
    apply, params = model
    tokens = np.random.default_rng(0).integers(0, 8, length).astype(np.int32)
    expected = []
    for label in range(1, length):
        start = 0 if label <= LENGTH else -(-(label - LENGTH) // (LENGTH // 2)) * (LENGTH // 2)
        logits = apply(params, tokens[None, start:label])[0, -1]
        expected.append(jax.nn.log_softmax(logits)[tokens[label]])
    found = token_log_probabilities(apply, params, ENDS.max_length, tokens)
    np.testing.assert_allclose(found, np.array(expected), rtol=2e-5)
    with pytest.raises(ConfigError, match="1 tokens leave nothing to predict"):
        token_log_probabilities(apply, params, ENDS.max_length, tokens[:1])


def test_each_window_draws_anew():
    params, apply = split(LanguageModel(small(max_length=LENGTH), key=jax.random.key(0)))
    even = jax.tree.map(jnp.zeros_like, params)
    how = {"strategy": Sample(), "key": jax.random.key(0)}
    made = continuation(apply, even, LENGTH, PROMPT, num_tokens=8, **how)
    assert made[2:5].tolist() != made[5:8].tolist()
