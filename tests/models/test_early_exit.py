"""The first layers of a model compute what they compute in the whole model, or the cut is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.activations import activation_names, run_with_cache
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.early_exit import early_exit
from transformer.models.pattern import Alternate
from transformer.residuals.residual import DeepNorm, PostNorm, Residual
from transformer.residuals.scaled_branches import LayerScale
from transformer.testing.subject import Subject, small

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 5, (2, 6)))
KINDS = Residual.variants()


def assert_layers_are_those_of_the_whole(residual):
    whole = Subject(small(num_layers=4, residual=residual))
    params, apply = early_exit(whole.config, whole.params, 2)
    names = [name for name in activation_names(apply, params, TOKENS) if name.startswith("blocks.1.resid_post")]
    cut = run_with_cache(apply, params, TOKENS, names=names)[1]
    expected = run_with_cache(whole.apply, whole.params, TOKENS, names=names)[1]
    for name in names:
        np.testing.assert_allclose(cut[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind().counts_layers])
def test_layers_of_every_residual_connection(name):
    assert_layers_are_those_of_the_whole(KINDS[name]())


def test_a_given_alpha_counts_no_layers():
    assert_layers_are_those_of_the_whole(DeepNorm(alpha=1.7, beta=0.3))


@pytest.mark.parametrize("name", ["backout", "deepnorm", "u_net"])
def test_connections_that_count_layers_are_refused(name):
    own = Subject(small(num_layers=4, residual=KINDS[name]()))
    with pytest.raises(ConfigError, match=rf"^early_exit: with {name}.* a layer depends on how many there are"):
        early_exit(own.config, own.params, 2)
    assert early_exit(own.config, own.params, 4)[0].keys() == own.params.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"residual": PostNorm(), "feed_forward": FeedForward(residual=DeepNorm())},
        {"residual": LayerScale(placement=DeepNorm())},
        {"pattern": (Alternate("residual", (PostNorm(), DeepNorm())),)},
    ],
    ids=str,
)
def test_so_are_those_of_some_sublayers(changes):
    own = Subject(small(num_layers=4, **changes))
    with pytest.raises(ConfigError, match=r"^early_exit: with .*deepnorm\)? a layer depends on how many there are"):
        early_exit(own.config, own.params, 2)
