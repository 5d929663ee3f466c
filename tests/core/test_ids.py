"""Ids outside of a table: refused where they are numbers, unseen where a program is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.arrays import check_ids, check_tokens
from transformer.core.errors import ConfigError
from transformer.inference.scoring import sequence_log_probability
from transformer.mixers.attention.attention import Attention
from transformer.models.classifier import Classifier, ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.language_model import LanguageModel

KEY = jax.random.key(0)
SIZES = {"vocab_size": 4, "max_length": 4, "num_layers": 1, "d_model": 8, "mixer": Attention(num_heads=2)}


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 1], [-1, 5]], r"^token -1 at \(1, 0\) is not in \[0, 4\)$"),
        ([[0, 4], [3, 5]], r"^token 4 at \(0, 1\) is not in \[0, 4\)$"),
        (7, r"^token 7 at \(\) is not in \[0, 4\)$"),
        ([0.0, 1.0], r"^token ids are float\d\d, not an array of integers in \[0, 4\)$"),
        ([True], r"^token ids are bool, not an array"),
    ],
)
def test_the_first_id_that_is_not_there(kind, ids, message):
    with pytest.raises(ConfigError, match=message):
        check_ids(kind(ids), 4, "token")


@pytest.mark.parametrize("ids", [[1, 2], "text", None])
def test_what_is_no_array(ids):
    with pytest.raises(ConfigError, match=f"^token ids are {type(ids).__name__}, not an array of integers"):
        check_ids(ids, 4, "token")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
def test_all_that_are_there(dtype):
    check_ids(np.arange(4, dtype=dtype), 4, "token")
    check_ids(np.zeros((0, 3), dtype), 4, "token")


def test_a_program_has_nothing_of_it():
    """Traced ids are not looked at; an array that the program only refers to is."""
    ids = jnp.array([9])
    assert jax.make_jaxpr(lambda ids: check_ids(ids, 4, "token"))(ids).eqns == []
    with pytest.raises(ConfigError, match="token 9"):
        jax.make_jaxpr(lambda x: (check_ids(ids, 4, "token"), x)[1])(1.0)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.arange(3), r"^tokens: an array \(3,\) is given, not one \(B, L\); tokens\[None\] is a batch of one$"),
        (np.zeros((1, 2, 3), int), r"^tokens: an array \(1, 2, 3\) is given, not one \(B, L\)$"),
        ([[1, 2]], r"^tokens: a list is given, not an array \(B, L\); use jnp\.asarray$"),
        ("text", r"^tokens: a text is given; encode it first"),
        (np.full((1, 2), 4), r"token 4 at \(0, 0\) is not in \[0, 4\)$"),
    ],
)
def test_what_is_no_batch_of_tokens(tokens, message):
    """In a model, where it is called eagerly, and in a program, whose shapes are known."""
    config = ModelConfig(**SIZES, predict_ahead=1)
    model = LanguageModel(config, key=KEY)
    both = EncoderDecoder(EncoderDecoderConfig(**SIZES, source_vocab_size=4), key=KEY)
    source = np.array([[0, 1]])
    readers = (
        lambda tokens: check_tokens(tokens, 4),
        model,
        model.predict_ahead,
        Encoder(config.replace(predict_ahead=0, causal=False), key=KEY),
        Classifier(ClassifierConfig(**SIZES, num_classes=2), key=KEY),
        lambda tokens: both(source, tokens),
    )
    for reads in readers:
        with pytest.raises(ConfigError, match=message):
            reads(tokens)
    with pytest.raises(ConfigError, match=r"^tokens: an array|^source token"):
        both(tokens, source)
    with pytest.raises(ConfigError, match=message):
        sequence_log_probability(lambda params, tokens: jnp.zeros((*tokens.shape, 4)), {}, tokens)
    check_tokens(np.array([[3, 0]]), 4)
