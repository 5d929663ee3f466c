"""Texts that are read segment by segment: each layer also sees the states of earlier ones (Dai et al. 2019)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.mixers.attention.sparsity import LocalBlocks, SlidingWindow
from transformer.mixers.attention.synthesizers import RandomSynthesizer
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate
from transformer.models.stack import Scanned
from transformer.objectives.objective import NextToken
from transformer.objectives.tokens import MultiToken, PrefixToken
from transformer.positions.absolute import Sinusoidal
from transformer.positions.relative import TransformerXL
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.runs.data import TextConfig
from transformer.testing.subject import small

TOKENS = np.random.default_rng(0).integers(0, 19, (2, 12)).astype(np.int32)


def made(**choices):
    config = small(**{"position": TransformerXL(limit=6), "memory_length": 12, **choices})
    return split(LanguageModel(config, key=jax.random.key(0)))


def read(params, apply, tokens, segment=4):
    """Logits of all tokens, read in segments, and the memory behind them."""
    memory, logits = apply(params, len(tokens), method="empty_memory"), []
    for start in range(0, tokens.shape[1], segment):
        own, memory = apply(params, tokens[:, start : start + segment], memory, method="read_segment")
        logits.append(own)
    return jnp.concatenate(logits, 1), memory


CHOICES = {
    "transformer_xl": {},
    "absolute positions": {"position": Sinusoidal()},
    "absolute blocks": {"position": RoPE(), "mixer.sparsity": LocalBlocks(3, neighbours=1)},
    "scanned, in turns": {
        "num_layers": 4,
        "layers": Scanned(remat="full"),
        "pattern": (Alternate("mixer.sparsity", (SlidingWindow(5), None)),),
    },
}


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_segments_are_the_whole_text_where_all_of_it_is_kept(choices):
    """Three segments of four tokens, and a text of twelve."""
    params, apply = made(**choices)
    logits, _ = read(params, apply, TOKENS)
    np.testing.assert_allclose(logits, apply(params, TOKENS), atol=2e-5)


def test_one_layer_sees_as_many_earlier_tokens_as_it_keeps():
    """The states of one layer are the embedded tokens, so it reads the last segment with those before it."""
    params, apply = made(num_layers=1, memory_length=3)
    logits, memory = read(params, apply, TOKENS)
    np.testing.assert_allclose(logits[:, 8:], apply(params, TOKENS[:, 5:])[:, 3:], atol=2e-5)
    assert memory.states_BNMD.shape == (2, 1, 3, 32)
    assert memory.valid_BM.all()


def test_the_beginning_sees_nothing_earlier():
    """Room that is not filled yet is not attended to, and is filled from behind."""
    params, apply = made(memory_length=6)
    logits, memory = read(params, apply, TOKENS[:, :4])
    np.testing.assert_allclose(logits, apply(params, TOKENS[:, :4]), atol=2e-5)
    np.testing.assert_array_equal(memory.valid_BM, [[False] * 2 + [True] * 4] * 2)


def test_no_gradient_reaches_an_earlier_segment():
    """That of the second segment's logits with respect to the embedding is 0 for tokens of the first alone."""
    params, apply = made()
    tokens = np.arange(8, dtype=np.int32)[None]

    def last(params):
        return jnp.square(read(params, apply, tokens)[0][:, 4:]).sum()

    def loss(params, memory):
        return jnp.square(apply(params, tokens[:, 4:], memory, method="read_segment")[0]).sum()

    both = jax.grad(last)(params)
    seen = np.abs(both["embedding"]["table"]).max(1) > 0
    assert not seen[:4].any()
    assert seen[4:8].all()
    alone = jax.grad(loss)(params, read(params, apply, tokens[:, :4])[1])
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-4), both, alone)
    # The matrices that make keys and values of earlier states do get one.
    forgotten = jax.grad(loss)(params, apply(params, 1, method="empty_memory"))
    kernels = (g["blocks"]["kinds"]["0"]["attention"]["key"]["kernel"] for g in (alone, forgotten))
    assert not np.allclose(*kernels, atol=1e-4)


def test_what_cannot_be_is_refused():
    """One line each, before anything is built."""
    refused = {
        "positions continue across segments, and those of learned end; use rope": {},
        "an encoder reads no text in segments": {"position": RoPE(), "causal": False},
        "has a table of positions, which ends": {"position": Sinusoidal(), "mixer.heads": RandomSynthesizer(length=12)},
        "0 is not a positive number": {"memory_length": 0},
    }
    for line, choices in refused.items():
        with pytest.raises(ConfigError, match=line):
            small(**{"memory_length": 4, **choices})
    with pytest.raises(ConfigError, match="an encoder reads no text in segments"):
        small(EncoderDecoderConfig, memory_length=4, position=RoPE())
    params, apply = made(memory_length=None)
    with pytest.raises(ConfigError, match="the model has no memory of earlier segments"):
        apply(params, 1, method="empty_memory")
    model = ModelConfig(vocab_size=19, memory_length=4, position=RoPE())
    RunConfig(model=model)
    with pytest.raises(ConfigError, match="do not follow each other; use next_token"):
        RunConfig(model=model, objective=PrefixToken())
    with pytest.raises(ConfigError, match="do not follow each other; use next_token"):
        RunConfig(model=model.replace(predict_ahead=1), objective=MultiToken())
    with pytest.raises(ConfigError, match=r"use one text without data\.document_separator"):
        RunConfig(model=model, objective=NextToken(), data=TextConfig(document_separator="\n"))
