"""Models of images: classes of them, and images from images."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer as T
from transformer.activations.activation import ReLU
from transformer.core.errors import ConfigError
from transformer.core.modules import split
from transformer.core.parameters import Normal
from transformer.embeddings.embedding import Embedding
from transformer.embeddings.patches import cut, join
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional.masks import Tokens
from transformer.mixers.attention.attention import Attention
from transformer.models.build import build
from transformer.models.images import AutoencoderConfig, PatchConfig, VisionConfig
from transformer.models.pattern import Alternate
from transformer.models.pooling import ClassToken, MeanPooling, Pooling
from transformer.models.transformer import Transformer
from transformer.norms.norm import RMSNorm
from transformer.positions.absolute import Learned, Sinusoidal2D
from transformer.positions.position import Position
from transformer.positions.randomized import Randomized
from transformer.positions.rotary import RoPE2D
from transformer.residuals.scaled_branches import TFixup

KEY = jax.random.key(0)
SUBLAYERS = {"mixer": Attention(num_heads=2), "feed_forward": FeedForward(d_ff=8)}
SIZES = {"vocab_size": 11, "max_length": 6, "num_layers": 1, "d_model": 8} | SUBLAYERS
LAWS = {"initializer": Normal(0.4), "embedding": Embedding(initializer=Normal(0.4)), "scale_residual_init": False}
SIMPLE = {"norm": RMSNorm(), "feed_forward": FeedForward(d_ff=8, activation=ReLU())}
HEADS = {"d_model": 16, "mixer.num_heads": 2}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def shipped(family):
    return [cls() for cls in family.variants().values() if cls.__module__.startswith("transformer.")]


def patches(kind=PatchConfig, **choices):
    return kind(**SIZES | LAWS | SIMPLE, image_size=(4, 6, 2), patch_size=2).replace(choices)


def pure(config):
    """The model's parameters and its compiled call."""
    params, apply = split(build(config, key=KEY))
    return params, jax.jit(apply, static_argnames="method")


def images(count=2, size=(4, 6, 2), seed=0):
    return np.random.default_rng(seed).normal(size=(count, *size)).astype(np.float32)


@pytest.mark.parametrize("kind", [PatchConfig, VisionConfig])
def test_patches_that_do_not_fill_an_image(kind):
    """The error names the nearest size that does; height and width need not be equal."""
    with pytest.raises(ConfigError, match=r"model.patch_size: patches of 4 do not fill images of 4 × 6; .* have 2"):
        build(patches(kind, patch_size=4), key=KEY)
    assert patches(kind, patch_size=2).grid == (2, 3)
    assert patches(kind, patch_size=1).patch_dim == 2


POOLED = [pooling for pooling in shipped(Pooling) if not pooling.per_token]
POSITIONS = [None, *(p for p in shipped(Position) if not isinstance(p, Randomized) and "score" not in p.acts)]
EYES = [(MeanPooling(), p) for p in POSITIONS] + [(p, Sinusoidal2D()) for p in POOLED[1:]]


@pytest.mark.parametrize(("pooling", "position"), EYES, ids=str)
def test_vision_transformer(pooling, position):
    """Finite logits of classes from every pooling and position; whole patches may change places only without one."""
    params, run = pure(patches(VisionConfig, num_classes=3, pooling=pooling, position=position))
    x = images()
    swapped = np.concatenate([x[:, :, 4:], x[:, :, 2:4], x[:, :, :2]], 2)
    out, other = (run(params, jnp.asarray(i)) for i in (x, swapped))
    assert out.shape == (2, 3)
    assert np.isfinite(out).all()
    difference = np.abs(out - other).max()
    assert difference < 1e-5 if position is None else difference > 1e-5


def test_a_model_knows_its_grid():
    """Columns come from the image, and a token before the patches moves the first one."""
    for pooling in (MeanPooling(), ClassToken()):
        model = build(patches(VisionConfig, num_classes=3, pooling=pooling, position=Sinusoidal2D()), key=KEY)
        assert model.config.position == Sinusoidal2D(columns=3, first=int(pooling.extra_token))
    assert build(patches(position=Sinusoidal2D()), key=KEY).config.position == Sinusoidal2D(columns=3)


@pytest.mark.parametrize("kind", [PatchConfig, VisionConfig])
def test_positions_that_alternate_are_on_the_grid_too(kind):
    """Whether the model's own is among them or none is."""
    sizes = {"num_classes": 3, "pooling": ClassToken()} if kind is VisionConfig else {}
    first = 1 if sizes else 0
    for position in (None, RoPE2D()):
        turns = (Alternate("position", (RoPE2D(), None)),)
        model = build(patches(kind, num_layers=2, **sizes, **HEADS, position=position, pattern=turns), key=KEY)
        assert [block.config.position for block in model.blocks] == [RoPE2D(columns=3, first=first), None]


@pytest.mark.parametrize("kind", [PatchConfig, VisionConfig, AutoencoderConfig])
def test_maps_of_patches_begin_as_tables_do(kind):
    """So that under µP the deviation of the head is the same at all widths."""
    sizes = {"num_classes": 3} if kind is VisionConfig else {}
    params, _ = pure(patches(kind, **sizes, **{"d_model": 64, "embedding.initializer": Normal(9.0)}))
    maps = ["embedding.projection"] if sizes else ["embedding.projection", "head"]
    for name in maps:
        kernel = functools.reduce(lambda tree, part: tree[part], [*name.split("."), "kernel"], params)
        assert 8 < np.std(kernel) < 10


def test_an_encoder_of_shown_patches_needs_one():
    params, run = pure(patches(AutoencoderConfig))
    with pytest.raises(ConfigError, match=r"^images: all of 6 patches are hidden, and the encoder reads the others"):
        run(params, jnp.asarray(images(1)), hidden_BH=jnp.arange(6)[None])


@pytest.mark.parametrize("kind", [PatchConfig, AutoencoderConfig])
@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ([[9]], r"patch 9 at \(0, 0\) is not in \[0, 6\)"),
        ([[1, 4, 1]], "patch 1 is there twice in row 0"),
        ([1, 4], r"\(2,\), not numbers of patches for each of 1 images"),
        ([[1], [2], [3]], r"\(3, 1\), not numbers of patches for each of 1 images"),
    ],
)
def test_what_is_hidden_is_there_and_once(kind, hidden, message):
    """Or the encoder would leave out patches that are shown."""
    params, run = split(build(patches(kind), key=KEY))
    with pytest.raises(ConfigError, match=rf"^hidden_BH: {message}"):
        run(params, jnp.asarray(images(1)), hidden_BH=jnp.asarray(hidden))


def test_channels_come_last():
    with pytest.raises(ConfigError, match=r"^model\.image_size: \(3, 8, 8\); channels come last, not first$"):
        _ = PatchConfig(image_size=(3, 8, 8), patch_size=4).grid


@pytest.mark.parametrize("kind", [PatchConfig, AutoencoderConfig, VisionConfig])
def test_images_have_the_size_of_the_model(kind):
    """Patches of a tall one would be taken for those of a wide one."""
    params, run = pure(patches(kind, **({"num_classes": 3} if kind is VisionConfig else {})))
    image = jnp.asarray(images(1))
    for other in (jnp.swapaxes(image, 1, 2), image[..., :1], image[:, : image.shape[1] // 2]):
        with pytest.raises(ConfigError, match=r"^images: \(.*\) for model\.image_size \(.*\); for another size"):
            run(params, other)


@pytest.mark.parametrize("kind", [PatchConfig, AutoencoderConfig])
def test_hidden_patches_have_no_influence(kind):
    """Pixels of hidden patches leave the output as it is, bit for bit; those of shown ones do not."""
    params, run = pure(patches(kind))
    hidden = np.array([[True, False, False, False, True, False]])
    x, other = images(1), images(1, seed=1)
    where = np.asarray(join(jnp.asarray(np.broadcast_to(hidden[..., None], (1, 6, 8))), 2, 3))
    arguments = {"hidden_BH": jnp.array([[4, 0]])}
    out = run(params, jnp.asarray(x), **arguments)
    assert out.shape == x.shape
    np.testing.assert_array_equal(run(params, jnp.asarray(np.where(where, other, x)), **arguments), out)
    assert np.abs(run(params, jnp.asarray(np.where(where, x, other)), **arguments) - out).max() > 1e-3
    assert np.abs(run(params, jnp.asarray(x)) - out).max() > 1e-3


def test_an_autoencoder_encodes_shown_patches_and_decodes_all():
    """As an encoder of all patches that attends to the shown ones; hidden ones are one vector at their positions."""
    config = patches(AutoencoderConfig, num_decoder_layers=1, position=Learned(std=0.5))
    model, x = build(config, key=KEY), jnp.asarray(images())
    hidden = jnp.array([[3, 1], [0, 5]])
    shown = ~(np.asarray(hidden)[:, :, None] == np.arange(6)).any(1)
    states, _ = model.transform(model.embedding(x), Tokens.at(np.arange(6), valid=jnp.asarray(shown)))
    whole = jnp.where(shown[..., None], model.bridge(states), model.hidden()["token"])
    decoded, _ = model.decoder.transform(whole, Tokens.at(np.arange(6)))
    chex.assert_trees_all_close(model.predict_patches(x, hidden_BH=hidden), model.head(decoded), **CLOSE)
    assert model.decoder.config.num_layers == 1
    with pytest.raises(ConfigError, match=r"model\.num_decoder_layers: 1 do not fit"):
        patches(AutoencoderConfig, num_layers=2, num_decoder_layers=1, distinct_layers=2)


def test_images_are_joined_patches():
    """The output image is the predicted patches in their places; hidden places are told apart by position."""
    params, run = pure(patches())
    x, hidden = jnp.asarray(images(1)), jnp.arange(6)[None]
    predicted = run(params, x, hidden_BH=hidden, method="predict_patches")
    np.testing.assert_array_equal(cut(run(params, x, hidden_BH=hidden), 2), predicted)
    np.testing.assert_array_equal(run(params, x, method="patches"), cut(x, 2))
    assert np.abs(predicted[0, 0] - predicted[0, 1]).max() > 1e-3


@pytest.mark.parametrize("size", [(8, 8), (8, 8, 0), (8, 8, 1, 1)])
def test_the_size_of_images_has_channels(size):
    with pytest.raises(ConfigError, match=r"model\.image_size: .* is not \(height, width, channels\)"):
        VisionConfig(image_size=size)


def test_a_residual_connection_scales_the_map_of_patches():
    """As it does a table of tokens."""
    plain = VisionConfig(num_classes=2, image_size=(4, 4, 1), patch_size=2, d_model=16, mixer=Attention(num_heads=2))
    scaled = plain.replace(residual=TFixup())
    kernels = [T.initial_params(one, jax.random.key(0))["embedding"]["projection"]["kernel"] for one in (plain, scaled)]
    np.testing.assert_allclose(kernels[1], scaled.embedding_gain * kernels[0], rtol=1e-6)


def test_encoder_and_decoder_have_keys_of_their_own(monkeypatch):
    keys, usual = [], Transformer.transform

    def transform(*args, key, **more):
        keys.append(key)
        return usual(*args, key=key, **more)

    monkeypatch.setattr(Transformer, "transform", transform)
    sizes = {"image_size": (4, 4, 1), "patch_size": 2, "num_layers": 1, "num_decoder_layers": 1, "d_model": 8}
    model = build(AutoencoderConfig(**sizes, mixer=Attention(num_heads=2)), key=KEY)
    model.predict_patches(jnp.ones((1, 4, 4, 1)), key=KEY)
    encoder, decoder = keys
    assert encoder != decoder


def test_an_autoencoder_adds_what_both_stacks_say_and_scales_its_output():
    """Experts that all take all tokens say 1 in every layer."""
    experts = TopKExperts(2, top=2, d_ff=8, balance=1.0, router_z=0.0)
    found, penalties = [], []
    for scale in (1.0, 0.25):
        config = patches(AutoencoderConfig, feed_forward=experts, num_decoder_layers=2, **{"head.scale": scale})
        params, apply = split(build(config, key=KEY))
        run = jax.jit(functools.partial(apply, method="predict_patches", with_penalty=True))
        out, penalty = run(params, images(), hidden_BH=jnp.array([[3, 1], [0, 5]]))
        found, penalties = [*found, out], [*penalties, penalty]
    np.testing.assert_allclose(penalties, 3.0, rtol=1e-5)
    chex.assert_trees_all_close(4 * found[1], found[0], **CLOSE)
