"""Rules with orthogonal steps, against their algorithms in NumPy, and the numbers of their iterations."""

from typing import Literal

import jax
import numpy as np
import optax
import pytest

from transformer.core import modules
from transformer.core.errors import ConfigError
from transformer.models.build import abstract_model
from transformer.models.config import ModelConfig
from transformer.positions.contextual import Contextual
from transformer.positions.relative import RelativeKeys, T5Bias
from transformer.runs.muon import POLAR_EXPRESS, Muon, NewtonSchulz, NorMuon, PolarExpress
from transformer.runs.rules import AdamW, in_layers

JORDAN = ((3.4445, -4.7750, 2.0315),) * 5


def kernels(trees):
    """The kernels of all layers, float64."""
    return [np.asarray(tree["blocks"]["kernel"], np.float64) for tree in trees]


def momenta(gradients, beta):
    """The unbiased mean of the gradients at each step."""
    m = 0
    for t, g in enumerate(gradients, 1):
        m = beta * m + (1 - beta) * g
        yield m / (1 - beta**t)


def flat(m, coefficients, safety=()):
    """The singular values of each matrix, divided by their norm, taken through polynomials, the first ones safely."""
    u, s, v = np.linalg.svd(m, full_matrices=False)
    s = s / np.linalg.norm(s, axis=-1, keepdims=True)
    divisors = (*safety, *[1.0] * len(coefficients))
    for (a, b, c), divisor in zip(coefficients, divisors, strict=False):
        s = s / divisor
        s = a * s + b * s**3 + c * s**5
    return u * s[..., None, :] @ v


@pytest.mark.parametrize(
    ("iterations", "coefficients"),
    [
        (NewtonSchulz(), JORDAN),
        (NewtonSchulz(2), JORDAN[:2]),
        (PolarExpress(1), POLAR_EXPRESS[:1]),
        (PolarExpress(3), POLAR_EXPRESS[:3]),
        (PolarExpress(8), POLAR_EXPRESS),
    ],
    ids=str,
)
def test_muon_takes_singular_values_through_polynomials(iterations, coefficients, directions, gradients):
    """Of every layer by itself; without Nesterov's momentum."""
    found = directions(Muon(0.8, nesterov=False, orthogonalization=iterations, rms=0.3), gradients)
    safety = (1.01**2, *[1.01] * 6) if isinstance(iterations, PolarExpress) else ()
    for m, direction in zip(momenta(kernels(gradients), 0.8), kernels(found), strict=True):
        expected = 0.3 * np.sqrt(6) * flat(m, coefficients, safety)
        np.testing.assert_allclose(direction, expected, rtol=1e-4, atol=1e-5)


def test_each_polynomial_of_the_polar_express_has_the_smallest_error():
    """It errs alike at both ends and inside; below a tenth of its maximum only at the ends' first."""
    low, high = 0.001, 1.0
    for a, b, c in POLAR_EXPRESS:
        peak, valley = np.sqrt(np.sort(np.roots([5 * c, 3 * b, a]).real)) if high - low > 0.01 else (high, low)
        at_low, at_peak, at_valley, at_high = (a * x + b * x**3 + c * x**5 for x in (low, peak, valley, high))
        np.testing.assert_allclose([at_peak, at_low], [at_high, 2 - at_high], rtol=1e-8)
        np.testing.assert_allclose(at_valley, max(at_low, at_high / 10), rtol=1e-8)
        low, high = at_low, at_high


def test_the_polar_express_arrives(directions, gradients):
    """At singular values of 1, before they are given the size of a step; iterations may go on."""
    found = directions(Muon(orthogonalization=PolarExpress(12), rms=1.0), gradients)
    singular = np.linalg.svd(np.stack(kernels(found)), compute_uv=False) / np.sqrt(6)
    np.testing.assert_allclose(singular, 1.0, atol=1e-4)


def test_norms_bring_singular_values_to_at_most_one(directions, gradients):
    """By the formulas, before a single iteration."""
    (gradient,) = kernels(gradients[:1])
    gram = gradient @ gradient.swapaxes(-1, -2)
    scales: dict[Literal["frobenius", "schatten", "aol"], np.ndarray] = {
        "frobenius": np.sqrt(np.trace(gram, axis1=-2, axis2=-1))[:, None, None],
        "schatten": np.sqrt(np.linalg.norm(gram, axis=(-2, -1)))[:, None, None],
        "aol": np.sqrt(np.abs(gram).sum(-1))[..., None],
    }
    a, b, c = JORDAN[0]
    for norm, scale in scales.items():
        rule = Muon(0.0, nesterov=False, orthogonalization=NewtonSchulz(1), norm=norm, rms=1.0)
        x = gradient / scale
        assert np.linalg.norm(x, 2, axis=(-2, -1)).max() <= 1
        square = x @ x.swapaxes(-1, -2)
        expected = np.sqrt(6) * (a * x + b * square @ x + c * square @ square @ x)
        np.testing.assert_allclose(kernels(directions(rule, gradients[:1]))[0], expected, rtol=1e-4, atol=1e-5)


def test_normuon_divides_each_neuron_by_its_own_size(directions, gradients):
    """A neuron is a column; nothing else of a direction than its root mean square is `rms`."""
    rule = NorMuon(0.8, nesterov=False, rms=0.3, beta2=0.7)
    v = 0
    for m, direction in zip(momenta(kernels(gradients), 0.8), kernels(directions(rule, gradients)), strict=True):
        orthogonal = flat(m, JORDAN)
        v = 0.7 * v + 0.3 * np.square(orthogonal).mean(1, keepdims=True)
        expected = orthogonal / np.sqrt(v)
        expected *= 0.3 * np.sqrt(24) / np.linalg.norm(expected, axis=(1, 2), keepdims=True)
        np.testing.assert_allclose(direction, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [Muon(), NorMuon()], ids=str)
def test_a_matrix_without_a_gradient_stays(rule, directions, gradients):
    """As that of an expert without tokens; what is no matrix moves as AdamW does."""
    gradients = [tree | {"blocks": tree["blocks"] | {"kernel": 0 * tree["blocks"]["kernel"]}} for tree in gradients]
    adamw = directions(AdamW(), gradients)
    for direction, other in zip(directions(rule, gradients), adamw, strict=True):
        assert not np.any(direction["blocks"]["kernel"])
        np.testing.assert_array_equal(direction["blocks"]["gate"], other["blocks"]["gate"])
        np.testing.assert_array_equal(direction["table"], other["table"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolarExpress(0), "polar_express.steps: 0 is not a positive number"),
        (lambda: NewtonSchulz(0), "newton_schulz.steps: 0 is not a positive number"),
        (lambda: NorMuon(beta2=1.0), r"normuon.beta2: 1.0 is not in \[0, 1\)"),
        (lambda: Muon.parse("muon(norm='spectral')"), "spectral"),
    ],
)
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def matrices_of(**fields):
    """The paths of what the rule for matrices of layers moves."""
    model = abstract_model(ModelConfig(vocab_size=8, num_layers=1, **fields))
    rule = in_layers(optax.trace(0.9), optax.identity(), modules.specs(model))
    state = jax.eval_shape(rule.init, modules.split(model)[0])
    return [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(state)]


def test_matrices_of_layers_for_further_tokens_are_matrices_of_layers():
    paths = matrices_of(predict_ahead=1)
    assert any("future" in path and "query" in path for path in paths)
    assert not any("embedding" in path or "scale" in path for path in paths)


@pytest.mark.parametrize("position", [Contextual(), RelativeKeys(values=True), T5Bias()], ids=str)
def test_tables_of_distances_are_no_matrices(position):
    assert not any("position" in path for path in matrices_of(position=position))


def test_nesterovs_momentum_looks_one_step_ahead(directions, gradients):
    """Both of its terms are unbiased, as in Nadam."""
    m, beta = 0, 0.8
    found = directions(Muon(beta, rms=0.3), gradients)
    for t, (g, direction) in enumerate(zip(kernels(gradients), kernels(found), strict=True), 1):
        m = beta * m + (1 - beta) * g
        ahead = beta * m / (1 - beta ** (t + 1)) + (1 - beta) * g / (1 - beta**t)
        np.testing.assert_allclose(direction, 0.3 * np.sqrt(6) * flat(ahead, JORDAN), rtol=1e-4, atol=1e-5)


def test_what_is_no_matrix_of_a_layer_has_the_rule_of_the_rest(directions, gradients):
    rest = AdamW(0.5, 0.6, 0.1)
    for one, other in zip(directions(Muon(rest=rest), gradients), directions(rest, gradients), strict=True):
        np.testing.assert_array_equal(one["table"], other["table"])
        np.testing.assert_array_equal(one["blocks"]["gate"], other["blocks"]["gate"])
