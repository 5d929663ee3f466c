"""A block, the masks of a model, and sublayers that are skipped in training."""

from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transformer.analysis.activations import run_with_cache
from transformer.core.arrays import dropout
from transformer.core.errors import ConfigError
from transformer.core.modules import at
from transformer.core.parameters import Normal
from transformer.functional.masks import Causal, Full, Padding, Tokens
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.sparsity import Linformer
from transformer.mixers.attention.synthesizers import DenseSynthesizer, RandomSynthesizer
from transformer.mixers.mixer import Context
from transformer.models.blocks import Macaron, Parallel, Sublayer
from transformer.models.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.models.language_model import LanguageModel
from transformer.models.transformer import Block
from transformer.norms.sequence_norm import SequenceLayerNorm
from transformer.positions.absolute import Learned, Sinusoidal
from transformer.residuals.residual import BranchNorm, NoNormResidual, PeriNorm, PreNorm, SandwichNorm
from transformer.testing.subject import Subject, small, tokens_of

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 16)), jnp.float32)
TOKENS = Tokens.at(np.arange(8))


@dataclass(frozen=True)
class WholeSteps(Macaron):
    """As `Macaron`, without the halves."""

    connections = ((Sublayer("feed_forward", 1.0, "feed_forward_before"),), (Sublayer("feed_forward"),))


@dataclass(frozen=True)
class Together(Parallel):
    """As `Parallel`, each by a factor."""

    name = "together"
    factor: float = 1.0

    @property
    def connections(self):
        return ((Sublayer("mixer", self.factor), Sublayer("feed_forward", self.factor)),)


SMALL = ModelConfig(vocab_size=8, max_length=8, num_layers=2, d_model=16, mixer=Attention(num_heads=2))


def config(**choices):
    """A small config, with choices by dotted path."""
    return SMALL.replace(choices)


def encoder(**choices):
    laws = {"initializer": Normal(0.5), "embedding.initializer": Normal(0.5)}
    return Encoder(config(causal=False, **laws | choices), key=KEY)


def test_dropout_in_a_block():
    """Both sublayers are dropped out, each under the key of its name, before they join the stream."""
    block = Block(config(dropout=0.5, residual=NoNormResidual(), initializer=Normal(1.0)), key=KEY)
    run = {"context": Context(TOKENS, Causal())}
    x = X + dropout(block.attention(X, **run)[0], 0.5, at(KEY, "attention"))
    x = x + dropout(block.feed_forward(x)[0], 0.5, at(KEY, "feed_forward"))
    chex.assert_trees_all_close(block(X, layer=0, **run, key=KEY)[0], x, rtol=1e-5, atol=1e-4)


def test_modules_can_be_printed():
    """`repr` shows the names of the parameters."""
    text = repr(Block(config(), key=KEY))
    assert "query" in text
    assert "feed_forward" in text
    assert isinstance(Block(config(), key=KEY), nnx.Module)


def test_padding_tokens_are_not_masked_padding():
    """`<EMPTY>` tokens that are fed as ordinary ones take a share of the attention; masked padding takes none."""
    model = encoder(position=Sinusoidal())
    text, empty = [5, 6, 7], 0
    alone = model(jnp.array([text]))
    padded = jnp.array([[*text, empty, empty]])
    masked = model(padded, valid_BL=jnp.array([[True] * 3 + [False] * 2]))
    chex.assert_trees_all_close(masked[:, :3], alone, rtol=1e-5, atol=1e-5)
    assert np.abs(model(padded)[:, :3] - alone).max() > 1e-2


def test_padding_on_the_right_does_not_reach_a_causal_decoder():
    """Behind the text nobody looks at `<EMPTY>`: the one place where the two are the same."""
    model = LanguageModel(config(position=None), key=KEY)
    padded = model(jnp.array([[5, 6, 7, 0, 0]]))
    chex.assert_trees_all_close(padded[:, :3], model(jnp.array([[5, 6, 7]])), rtol=1e-5, atol=1e-5)


def test_padding_is_the_only_mask_of_an_encoder():
    """An encoder looks at all tokens; a source with padding needs its mask, one without does not."""
    model = encoder()
    assert model.mask_of(TOKENS) == Full()
    assert model.mask_of(TOKENS._replace(valid=jnp.ones((1, 8), bool))) == Full() & Padding()


@pytest.mark.parametrize("layer", [0, 1, 3])
def test_the_rate_of_a_layer_rises_to_that_of_the_last(layer):
    """A sequence skips both sublayers of layer l of N with probability (rate · (l + 1)/N)²."""
    own = config(num_layers=4, stochastic_depth=0.8, residual=NoNormResidual())
    block = Block(own, key=KEY)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3000, 2, 16)), jnp.float32)
    run = {"context": Context(Tokens.at(np.arange(2)), Causal())}
    out, _ = jax.jit(lambda key: block(x, layer=layer, key=key, **run))(KEY)
    skipped = (np.asarray(out) == np.asarray(x)).all((1, 2)).mean()
    rate = 0.8 * (layer + 1) / 4
    np.testing.assert_allclose(skipped, rate**2, atol=4 * (rate**2 / 3000) ** 0.5)


@pytest.mark.parametrize("residual", [PreNorm(), BranchNorm(), SandwichNorm()], ids=str)
def test_what_is_added_has_the_mean_of_what_is_evaluated(residual):
    """Also behind a norm of the branch, which would undo the division by the rate that is kept, and add its bias to
    sequences that are skipped."""
    own = config(num_layers=1, stochastic_depth=0.8, residual=residual, mixer=None)
    block = Block(own, key=KEY)
    for norm in (block.feed_forward_residual.norms[name] for name in residual.norms):
        norm.params.bias[...] = jnp.ones(16)
    x = jnp.broadcast_to(X[:, :2], (4000, 2, 16))
    run = {"context": Context(Tokens.at(np.arange(2)), Causal()), "layer": 0}
    evaluated, trained = block(x, key=None, **run)[0] - x, jax.jit(lambda key: block(x, key=key, **run)[0])(KEY) - x
    np.testing.assert_allclose(trained.mean(0), evaluated[0], atol=0.2)
    assert np.isclose((trained == 0).all((1, 2)).mean(), 0.8, atol=0.05)


@pytest.mark.parametrize("residual", [PreNorm(), BranchNorm(), PeriNorm()], ids=str)
def test_half_a_step_is_half_of_what_is_added(residual):
    """Also behind a norm of the branch (Lu et al. 2019, equation 10)."""
    block = Block(config(num_layers=1, residual=residual, mixer=None, block=Macaron()), key=KEY)
    whole = Block(config(num_layers=1, residual=residual, mixer=None, block=WholeSteps()), key=KEY)
    run = {"context": Context(TOKENS, Causal()), "layer": 0, "key": None}
    found, full = (run_with_cache(lambda _, x, b=b: b(x, **run), None, X)[1] for b in (block, whole))
    first = "resid_feed_forward_before"
    np.testing.assert_allclose(2 * (found[first] - X), full[first] - X, atol=1e-5)


@pytest.mark.parametrize("residual", [PreNorm(), BranchNorm()], ids=str)
def test_half_a_step_of_two_sublayers(residual):
    """Of one connection, whose outputs are summed before the norm."""
    half, whole = (
        Block(config(num_layers=1, residual=residual, block=Together(factor)), key=KEY) for factor in (0.5, 1.0)
    )
    run = {"context": Context(TOKENS, Causal()), "layer": 0, "key": None}
    np.testing.assert_allclose(2 * (half(X, **run)[0] - X), whole(X, **run)[0] - X, atol=1e-5)


def test_stochastic_depth_without_a_key():
    """Evaluation skips nothing; with a key something is skipped."""
    plain, deep = (LanguageModel(config(stochastic_depth=rate), key=KEY) for rate in (0.0, 0.9))
    text = jnp.array([[7, 3, 0, 5]])
    expected = plain(text)
    chex.assert_trees_all_close(deep(text), expected, rtol=1e-6)
    chex.assert_trees_all_close(plain(text, key=KEY), expected, rtol=1e-6)
    outs = [deep(text, key=at(KEY, i)) for i in range(3)]
    assert max(np.abs(out - expected).max() for out in outs) > 1e-3


@pytest.mark.parametrize(
    "choice", [{"norm": SequenceLayerNorm()}, {"mixer.sparsity": Linformer(3, 16)}], ids=["norm", "attention"]
)
def test_what_looks_at_all_tokens_takes_no_mask(choice):
    """Earlier tokens would see later ones."""
    own = Subject(small(**{"causal": False, "mixer.num_kv_heads": None} | choice))
    with pytest.raises(ConfigError, match=r"^mask: .* looks at all tokens of a row, whatever .* says; use no mask$"):
        own.apply(own.params, tokens_of(2), mask=Causal())


@pytest.mark.parametrize(
    "choice",
    [
        {"mixer.sparsity": Linformer(3, 16), "causal": False, "mixer.num_kv_heads": None},
        {"mixer.heads": DenseSynthesizer(length=16)},
        {"mixer.heads": RandomSynthesizer(length=16)},
        {"position": Learned()},
    ],
    ids=str,
)
def test_positions_past_a_table_are_nan(choice):
    """Not numbers that would be those of other positions."""
    own = Subject(small(**{"max_length": 16, "position": None} | choice))
    tokens = tokens_of(2)
    assert jnp.isfinite(own.apply(own.params, tokens)).all()
    assert not jnp.isfinite(own.apply(own.params, tokens, positions_BL=jnp.arange(tokens.shape[1])[None] + 16)).any()
