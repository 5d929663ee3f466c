"""What is measured over depth, on arrays and models that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.activations import intervene, run_with_cache
from transformer.analysis.depth import norms_by_layer, rank_collapse, receptive_field, root_mean_square
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.classifier import ClassifierConfig
from transformer.models.pattern import Alternate
from transformer.testing.subject import Subject, shaken, small, tokens_of

TOKENS = jnp.asarray(tokens_of(2))


def test_root_mean_square_and_rank_collapse():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 400)) * 3, jnp.float32)
    np.testing.assert_allclose(root_mean_square(x), 3, rtol=0.1)
    np.testing.assert_allclose(rank_collapse(jnp.ones((2, 6, 4))), 0, atol=1e-6)
    np.testing.assert_allclose(rank_collapse(x - x.mean(1, keepdims=True)), 1, rtol=1e-5)
    np.testing.assert_array_equal(rank_collapse(jnp.stack([x, x + 1])), [rank_collapse(x), rank_collapse(x + 1)])


def test_norms_by_layer():
    subject = Subject(small(pattern=(Alternate("feed_forward", (None, FeedForward(d_ff=24))),), num_layers=4))
    norms = norms_by_layer(subject.params)
    kernel = subject.params["blocks"]["kinds"]["1"]["attention"]["query"]["kernel"]
    np.testing.assert_allclose(norms["attention/query/kernel"][3], np.linalg.norm(kernel[1]), rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(norms["feed_forward/out/kernel"]), [True, False, True, False])
    other = shaken(subject.params, seed=1)
    both = jax.tree.map(lambda *leaves: np.stack(leaves), subject.params, other)
    for row, one in zip(range(2), (subject.params, other), strict=True):
        single = norms_by_layer(one)
        for name, values in norms_by_layer(both, replicas=True).items():
            np.testing.assert_allclose(values[row], single[name], rtol=1e-6)


def test_the_receptive_field_is_what_the_masks_of_all_layers_let_through():
    subject = Subject(small(**{"mixer.sparsity": SlidingWindow(2)}))  # two layers: two tokens back
    field = receptive_field(subject.apply, subject.params, TOKENS, key=jax.random.key(0))
    distance = np.arange(8)[:, None] - np.arange(8)
    np.testing.assert_array_equal(np.asarray(field) > 0, (distance >= 0) & (distance <= 2))


def test_the_receptive_field_of_one_layer_is_the_jacobian():
    subject = Subject(small())
    draw = jax.jit(lambda key: receptive_field(subject.apply, subject.params, TOKENS[:1], key=key))
    fields = [draw(jax.random.key(i)) for i in range(40)]
    estimate = np.sqrt(np.square(fields).mean(0))

    def out(x):
        return intervene(subject.apply, {"blocks.0.resid_pre": lambda _: x})(subject.params, TOKENS[:1])[0]

    start = run_with_cache(subject.apply, subject.params, TOKENS[:1])[1]["blocks.0.resid_pre"]
    jacobian = jax.jacobian(out)(start)[:, :, 0]  # (L, V, S, D)
    exact = np.sqrt(np.square(jacobian).sum((1, 3)))
    np.testing.assert_allclose(np.diagonal(estimate), np.diagonal(exact), rtol=0.35)


def test_the_norms_are_of_one_side():
    with pytest.raises(ConfigError, match=r"^norms_by_layer: the tree has no blocks; known: decoder, encoder$"):
        norms_by_layer({"encoder": {"blocks": {}}, "decoder": {"blocks": {}}, "output": {}})


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("blocks.*.resid_pre", r"to 'blocks\.\*\.resid_pre' is several activations, such as blocks\.0\.resid_pre"),
        ("blocks.0.attention.pattern", r".* blocks\.0\.attention\.pattern \(2, 4, 8, 8\), not \(B, L, …\)"),
    ],
)
def test_a_receptive_field_is_of_tokens(to, message):
    subject = Subject(small())
    with pytest.raises(ConfigError, match=f"^receptive_field: {message}"):
        receptive_field(subject.apply, subject.params, TOKENS, key=jax.random.key(0), to=to)


def test_a_receptive_field_has_outputs_of_tokens():
    subject = Subject(small(ClassifierConfig, causal=False, num_classes=3))
    with pytest.raises(ConfigError, match=r"^receptive_field: the output is \(2, 3\) and .*, not \(B, L, …\)"):
        receptive_field(subject.apply, subject.params, TOKENS, key=jax.random.key(0))
    decoder = Subject(small())
    field = receptive_field(lambda *args: decoder.apply(*args)[..., 0], decoder.params, TOKENS, key=jax.random.key(0))
    assert field.shape == (8, 8)


def test_a_mean_is_part_of_the_size():
    np.testing.assert_allclose(root_mean_square(jnp.full((1, 2, 4), 3.0)), 3, rtol=1e-6)


def test_a_receptive_field_is_a_mean_over_the_batch():
    subject = Subject(small())
    one, three = (
        receptive_field(subject.apply, subject.params, jnp.repeat(TOKENS[:1], rows, 0), key=jax.random.key(0))
        for rows in (1, 3)
    )
    assert float(three.sum()) == pytest.approx(float(one.sum()), rel=0.2)
