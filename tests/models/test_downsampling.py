"""Layers that see fewer vectors than there are tokens (Nawrot et al. 2021; Dai Z. et al. 2020)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.functional.masks import Causal, Full, Prefix, Tokens
from transformer.inference.generate import generate
from transformer.inference.tokenwise import Greedy
from transformer.mixers.attention.sharing import ValueResidual
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.mixers.mixer import Context
from transformer.models.downsampling import Hourglass, Latents, lengthened, shortened
from transformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transformer.models.language_model import LanguageModel
from transformer.models.pattern import Alternate
from transformer.models.stack import Scanned
from transformer.positions.absolute import Learned, StepSinusoidal
from transformer.positions.rotary import RoPE, RoPE2D
from transformer.residuals.multi_stream import UNet
from transformer.testing.encoder_decoder import translates
from transformer.testing.subject import small, tokens_of

X = jnp.arange(1.0, 8.0).reshape(1, 7, 1)


@pytest.mark.parametrize(
    ("causal", "means", "back"),
    [(True, [1, 3, 6], [1, 1, 1, 3, 3, 3, 6]), (False, [2, 5, 7], [2, 2, 2, 5, 5, 5, 7])],
)
def test_means_by_hand(causal, means, back):
    """Causal, a mean ends with the first of the tokens that read it; otherwise it is of them."""
    short, places = shortened(X, Tokens.at(np.arange(6, 13)), 3, causal=causal)
    np.testing.assert_allclose(short[0, :, 0], means)
    np.testing.assert_array_equal(places.positions, [[2, 3, 4]])
    np.testing.assert_allclose(lengthened(short, 3, 7)[0, :, 0], back)


def test_padding_is_in_no_mean():
    """Means of the real tokens; one without any is padding itself."""
    valid = np.array([[True, False, True, True, False, False, False]])
    short, places = shortened(X, Tokens.at(np.arange(7), valid=valid), 3, causal=False)
    np.testing.assert_allclose(short[0, :, 0], [2, 4, 0])
    np.testing.assert_array_equal(places.valid, [[True, True, False]])


def test_an_hourglass_is_its_layers():
    """Layer 0 on all tokens, 1 and 2 on means, whose states are added to each token, then layer 3."""
    config = small(num_layers=4, position=RoPE(), downsampling=Hourglass(factor=2))
    model = LanguageModel(config, key=jax.random.key(0))
    tokens, half = Tokens.at(np.arange(8)), Tokens.at(np.arange(4))
    blocks = [
        lambda x, t, i=i: model.blocks[i](x, context=Context(t, Causal()), layer=i, key=None)[0] for i in range(4)
    ]
    x = blocks[0](model.embedding(tokens_of(2)), tokens)
    short = jnp.stack([x[:, 0], *((x[:, i - 1] + x[:, i]) / 2 for i in (2, 4, 6))], 1)
    x = x + jnp.repeat(blocks[2](blocks[1](short, half), half), 2, axis=1)
    expected = model.final_norm(blocks[3](x, tokens), None)
    found, _ = model.transform(model.embedding(tokens_of(2)), tokens)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    scanned = LanguageModel(config.replace(layers=Scanned()), key=jax.random.key(0))
    np.testing.assert_allclose(scanned(tokens_of(2)), model(tokens_of(2)), atol=1e-5)


def test_an_hourglass_in_an_hourglass():
    """Layer 0 on tokens, 1 on means of two, 2 on means of two of those, 3 on tokens; states are added back."""
    inner = Hourglass(factor=2, first=1, last=0)
    config = small(num_layers=4, position=RoPE(), downsampling=Hourglass(factor=2, middle=inner), causal=False)
    model = LanguageModel(config, key=jax.random.key(0))
    places = [Tokens.at(np.arange(size)) for size in (8, 4, 2)]
    run = [
        lambda x, i=i, t=t: model.blocks[i](x, context=Context(t, Full()), layer=i, key=None)[0]
        for i, t in enumerate((*places, places[0]))
    ]
    x = run[0](model.embedding(tokens_of(2)))
    half = run[1](x.reshape(2, 4, 2, -1).mean(2))
    quarter = run[2](half.reshape(2, 2, 2, -1).mean(2))
    x = run[3](x + jnp.repeat(half + jnp.repeat(quarter, 2, axis=1), 2, axis=1))
    found, _ = model.transform(model.embedding(tokens_of(2)), places[0])
    np.testing.assert_allclose(found, model.final_norm(x, None), atol=1e-5)


def test_latents_in_an_hourglass():
    """The middle layers see vectors that read means; what is asked of latents is asked of them there too."""
    inner = Hourglass(factor=2, middle=Latents(count=3))
    choices = {"num_layers": 4, "position": Learned(), "downsampling": inner}
    model = LanguageModel(small(**choices, causal=False), key=jax.random.key(0))
    found = model(tokens_of(2))
    assert found.shape[:2] == (2, 8)
    assert np.isfinite(found).all()
    assert model.downsampling_params().keys() == Latents(count=3).parameters(32).keys()
    for more, line in (({}, "reads all tokens, later ones too"), ({"causal": False, "position": RoPE()}, "of rope")):
        with pytest.raises(ConfigError, match=line):
            small(**choices | more)


def test_latents_read_the_tokens_and_are_read_by_them():
    """softmax(qk/√K)v by heads, twice; all layers in between see the vectors alone; padding is not read."""
    config = small(position=Learned(), downsampling=Latents(count=5, num_heads=4), causal=False)
    model, valid = LanguageModel(config, key=jax.random.key(0)), np.arange(8) < 6
    params, size = model.downsampling_params(), config.d_model

    def normal(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def read(way, x, source, valid):
        w = {role: np.asarray(params[f"{way}_{role}"]) for role in ("query", "key", "value", "out")}
        q = (normal(x) @ w["query"]).reshape(2, -1, 4, size // 4)
        k, v = ((normal(source) @ w[role]).reshape(2, -1, 4, size // 4) for role in ("key", "value"))
        scores = np.einsum("blhk,bshk->bhls", q, k) / np.sqrt(size / 4)
        weights = jax.nn.softmax(jnp.where(valid, scores, -np.inf))
        return np.einsum("bhls,bshk->blhk", weights, v).reshape(2, -1, size) @ w["out"]

    tokens, five = Tokens.at(np.arange(8), valid=valid), Tokens.at(np.arange(5))
    context = Context(tokens, position_params=model.position())
    embedded = np.asarray(model.stream_of(model.embedding(tokens_of(2)), context))
    vectors = np.broadcast_to(params["vectors"], (2, 5, size))
    vectors = vectors + read("read", vectors, embedded, valid)
    for i in range(2):
        vectors, _ = model.blocks[i](jnp.asarray(vectors), context=Context(five, Full()), layer=i, key=None)
    expected = model.final_norm(embedded + read("write", embedded, np.asarray(vectors), True), None)
    found, _ = model.transform(model.embedding(tokens_of(2)), tokens)
    np.testing.assert_allclose(found, expected, atol=2e-4)


BESIDE_A_DECODER = [{"encoder_downsampling": Latents(5)}, {"encoder_downsampling": Hourglass(last=0)}, {"registers": 2}]


@pytest.mark.parametrize("choices", BESIDE_A_DECODER, ids=str)
def test_the_encoder_beside_a_decoder(choices):
    """It may shorten its source, or begin with vectors that the decoder sees too; the decoder caches as ever."""
    config = small(EncoderDecoderConfig, **choices)
    translates(config)
    model = EncoderDecoder(config, key=jax.random.key(0))
    source, _ = model.encode(jnp.asarray(tokens_of(2)), jnp.arange(8)[None] < 5)
    assert source.states_BSD.shape == (2, 8 + config.registers, config.d_model)
    assert source.tokens.valid.sum() == 5 + config.registers


def test_prompts_of_different_lengths_are_continued_as_without_a_cache():
    """The likeliest token of the whole sequence so far, again and again."""
    params, apply = split(LanguageModel(small(downsampling=Hourglass(factor=3, last=0)), key=jax.random.key(0)))
    prompt, lengths = tokens_of(2, 5), np.array([5, 3])
    made = generate(apply, params, prompt, num_tokens=4, strategy=Greedy(), lengths_B=lengths)
    for row, length, chosen in zip(prompt, lengths, made.tokens_BT, strict=True):
        text = row[:length]
        for token in chosen:
            assert int(apply(params, text[None])[0, -1].argmax()) == token
            text = np.append(text, token)


def test_what_cannot_be_is_refused():
    """One line each."""
    refused = {
        r"leaves none of 2 layers between the 1 first and the 1 last": {},
        r"1 first and 1 last layers are not whole turns of 2": {
            "num_layers": 4,
            "pattern": (Alternate("mixer.sparsity", (SlidingWindow(3), None)),),
        },
        r"u_net keeps a stream of its own; use pre": {"num_layers": 4, "residual": UNet()},
        r"layers would take over values of other tokens": {"num_layers": 4, "mixer.sharing": ValueResidual()},
        r"latents reads all tokens, later ones too": {"downsampling": Latents()},
        r"in place of step_sinusoidal": {
            "downsampling": Latents(),
            "causal": False,
            "position": StepSinusoidal(),
        },
        r"joins patches, and rope_2d.* counts them on a grid; use none": {"num_layers": 4, "position": RoPE2D()},
        r"in place of rope": {"downsampling": Latents(), "causal": False, "position": RoPE()},
        r"3 heads do not divide d_model 32": {"downsampling": Latents(num_heads=3), "causal": False},
        r"keep states of different tokens": {"num_layers": 4, "memory_length": 2, "position": RoPE()},
    }
    for line, choices in refused.items():
        with pytest.raises(ConfigError, match=line):
            small(**{"downsampling": Hourglass(), **choices})
    with pytest.raises(ConfigError, match=r"leaves none of 1 layers between the 1 first and the 1 last"):
        small(downsampling=Hourglass(last=0, middle=Hourglass()))
    with pytest.raises(ConfigError, match=r"model\.registers: -1 is negative"):
        small(EncoderDecoderConfig, registers=-1)
    with pytest.raises(ConfigError, match="has no cache of layers with a source; set encoder_downsampling"):
        small(EncoderDecoderConfig, downsampling=Hourglass(last=0))
    for line, values in ((r"factor: 1 shortens nothing", {"factor": 1}), (r"-1 first", {"first": -1})):
        with pytest.raises(ConfigError, match=line):
            Hourglass(**values)
    model = LanguageModel(small(downsampling=Hourglass(last=0)), key=jax.random.key(0))
    with pytest.raises(ConfigError, match="is for tokens, and hourglass"):
        model(tokens_of(1), mask=Causal() | Prefix(2))
    with pytest.raises(ConfigError, match="packed documents would see each other"):
        model(tokens_of(1), segments_BL=np.zeros((1, 8), np.int32))


def test_matrices_of_latents_begin_by_their_fan_in():
    """1/√d_model, as what they read is normalized; the vectors begin as embeddings do."""
    values = {name: spec.initial_value(jax.random.key(0)) for name, spec in Latents(64).parameters(64).items()}
    np.testing.assert_allclose(values.pop("vectors").std(), 0.02, rtol=0.05)
    assert len(values) == 8
    for matrix in values.values():
        np.testing.assert_allclose(matrix.std(), 1 / 8, rtol=0.05)
