"""In-context linear regression as data: what is asked, what is seen, and least squares against a slow solver."""

import chex
import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.parameters import FanIn
from transformer.data.dataset import EVALUATION_BATCH, load_data
from transformer.data.regression import InContextRegressionConfig, InContextRegressionRun, least_squares
from transformer.embeddings.embedding import Embedding
from transformer.mixers.attention.attention import Attention
from transformer.models.vectors import VectorConfig
from transformer.runs.config import Replica
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.schedules import Schedule
from transformer.training.loop import train
from transformer.training.stored import load_run

SMALL = {"dimensions": 3, "points": 6, "examples": 30, "validation_examples": 20}


def described(**fields):
    return InContextRegressionConfig(**SMALL | fields)


def rows(batch):
    """(x, y) of each sequence as lists, read from the places of the inputs."""
    return [([list(map(float, x)) for x in row[::2]], [float(y) for y in row[1::2, 0]]) for row in batch["inputs"]]


def dot(a, b):
    return sum(i * j for i, j in zip(a, b, strict=True))


def solve(matrix, right):
    """The solution of a square system, by elimination."""
    system, size = [[*row, r] for row, r in zip(matrix, right, strict=True)], len(right)
    for i in range(size):
        pivot = max(range(i, size), key=lambda j: abs(system[j][i]))
        system[i], system[pivot] = system[pivot], system[i]
        for j in range(size):
            if j != i:
                factor = system[j][i] / system[i][i]
                system[j] = [a - factor * b for a, b in zip(system[j], system[i], strict=True)]
    return [system[i][size] / system[i][i] for i in range(size)]


def fitted(xs, ys, dimensions):
    """The weights of least squares from normal equations; the shortest where points are few."""
    if len(xs) < dimensions:
        of_points = solve([[dot(a, b) for b in xs] for a in xs], ys)
        return [sum(c * x[d] for c, x in zip(of_points, xs, strict=True)) for d in range(dimensions)]
    columns = list(zip(*xs, strict=True))
    return solve([[dot(a, b) for b in columns] for a in columns], [dot(a, ys) for a in columns])


def errors_by_hand(batch):
    """The squared error of least squares at each point, (N, points)."""
    return np.array(
        [
            [(dot(fitted(xs[:i], ys[:i], len(xs[0])), xs[i]) - ys[i]) ** 2 for i in range(len(xs))]
            for xs, ys in rows(batch)
        ]
    )


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_sequence(part):
    """x and y in turn, y before zeros; each y is asked for at its x, one place before it is seen."""
    batch = getattr(load_data(described()), part)
    count = SMALL["examples" if part == "train" else "validation_examples"]
    assert batch["inputs"].shape == (count, 12, 3)
    assert not batch["inputs"][:, 1::2, 1:].any()
    np.testing.assert_array_equal(batch["weights"], np.tile([1, 0], (count, 6)))
    np.testing.assert_array_equal(batch["labels"][:, ::2, 0], batch["inputs"][:, 1::2, 0])
    assert {a.dtype for a in batch.values()} == {np.dtype(np.float32)}


def test_one_function_for_each_sequence():
    """Weights from the first points give all later values, and differ from row to row."""
    weights = []
    for xs, ys in rows(load_data(described()).train):
        weights.append(fitted(xs[:3], ys[:3], 3))
        np.testing.assert_allclose([dot(weights[-1], x) for x in xs[3:]], ys[3:], atol=1e-3)
    assert len(np.unique(np.round(weights, 3), axis=0)) == 30


def test_sizes_of_numbers():
    """x and w are standard normal, and the noise has its deviation, on a y of its own."""
    quiet, loud = (load_data(described(noise=noise, examples=4000)).train for noise in (0.0, 0.5))
    x, y = quiet["inputs"][:, ::2], quiet["inputs"][:, 1::2, 0]
    np.testing.assert_allclose([x.mean(), x.var()], [0, 1], atol=0.02)
    np.testing.assert_allclose([y.mean(), y.var()], [0, 3], atol=0.2)
    np.testing.assert_array_equal(loud["inputs"][:, ::2], x)
    noise = loud["inputs"][:, 1::2, 0] - y
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 0.5], atol=0.01)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.1


def test_what_determines_the_sequences():
    """The fingerprint names it; held-out ones are others, and stay when there are more for training."""
    changes = [{}, {"seed": 1}, {"examples": 31}, {"validation_examples": 21}, {"noise": 0.1}, {"points": 7}]
    data = [load_data(described(**more)) for more in changes]
    assert len({one.fingerprint for one in data}) == len(data)
    assert load_data(described()).fingerprint == data[0].fingerprint
    chex.assert_trees_all_equal(data[0].validation, data[2].validation)
    others = load_data(described(examples=20)).train, data[1].validation
    assert not any(np.isin(data[0].validation["inputs"][:, 0], other["inputs"]).any() for other in others)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("dimensions", [1, 3])
def test_the_reference_is_least_squares(noise, dimensions):
    """Over all points: of those without a point before them the error is y², as for each that nothing is known of."""
    data = load_data(described(noise=noise, dimensions=dimensions))
    errors = errors_by_hand(data.validation)
    name, loss = data.reference()
    assert (name, loss) == ("least squares", pytest.approx(errors.mean(), rel=1e-3))
    np.testing.assert_allclose(errors[:, 0], data.validation["labels"][:, 0, 0] ** 2, rtol=1e-6)


def test_least_squares_is_exact_from_as_many_points_as_dimensions():
    """Without noise only the first places add to the mean of the errors, and noise adds to it at all places."""
    quiet, loud = (load_data(described(points=9, noise=noise)) for noise in (0.0, 0.5))
    labels, inputs = quiet.validation["labels"][:, ::2, 0], quiet.validation["inputs"][:, ::2]
    errors = (least_squares(inputs, labels) - labels) ** 2
    assert errors[:, 3:].max() < 1e-3
    assert errors[:, :3].mean(0).min() > 0.3
    assert quiet.reference()[1] == pytest.approx(errors[:, :3].sum() / errors.size, rel=1e-3)
    assert loud.reference()[1] > quiet.reference()[1] + 0.25


def test_a_model_for_the_sequences():
    """Its sizes come from the data; what does not fit is refused with the number."""
    data, config = load_data(described()), InContextRegressionRun(data=described())
    model = data.complete(config).model
    assert (model.features, model.outputs) == (3, 1)
    assert data.complete(InContextRegressionRun()).data == described()
    assert data.complete(config.replace({"model.max_length": 12})).model.max_length == 12
    with pytest.raises(ConfigError, match=r"model\.max_length: 11, but linear regression.* has 12 vectors"):
        data.complete(config.replace({"model.max_length": 11}))
    with pytest.raises(ConfigError, match=r"model\.features: 4, but linear regression.* has 3"):
        data.complete(config.replace({"model.features": 4}))
    with pytest.raises(ConfigError, match=r"model\.outputs: 2, but linear regression.* has 1"):
        data.complete(config.replace({"model.outputs": 2}))
    with pytest.raises(ConfigError, match="regression needs a causal model"):
        config.replace({"model.causal": False})


def test_the_held_out_part_is_read_once():
    batch = load_data(described()).validation_batches(InContextRegressionRun())
    assert batch["inputs"].shape == (1, EVALUATION_BATCH, 12, 3)
    assert batch["weights"].sum() == 20 * 6


@pytest.mark.parametrize("name", ["dimensions", "points", "examples", "validation_examples"])
def test_sizes_are_positive(name):
    with pytest.raises(ConfigError, match=rf"^data\.{name}: 0 is not a number from 1 on$"):
        described(**{name: 0})


@pytest.mark.parametrize(("name", "value"), [("noise", -0.1), ("noise", float("nan")), ("seed", -1)])
def test_noise_and_seed_are_not_negative(name, value):
    with pytest.raises(ConfigError, match=rf"^data\.{name}: {value} is not a number from 0 on$"):
        described(**{name: value})


def test_points_are_learned_from(tmp_path):
    """The error falls below that of a guess at zero, which knows no point, and the run is read back as it was."""
    data = described(dimensions=1, points=5, examples=13_000, validation_examples=200)
    sizes = {"max_length": 10, "num_layers": 2, "d_model": 32, "mixer": Attention(num_heads=2)}
    model = VectorConfig(**sizes, initializer=FanIn(), embedding=Embedding(initializer=FanIn()))
    optimizer = OptimizerConfig(learning_rate=1e-2, schedule=Schedule.parse("constant"))
    config = InContextRegressionRun(model=model, data=data, optimizer=optimizer, batch_size=64, steps=200)
    loaded = load_data(data)
    outcome = train(config, [Replica()], loaded, tmp_path / "run")
    labels, weights = loaded.validation["labels"][..., 0], loaded.validation["weights"]
    ignorant = (labels**2).sum() / weights.sum()
    assert loaded.reference()[1] < outcome.validation_loss[0] < 0.75 * ignorant
    run = load_run(tmp_path / "run")
    assert run.config == outcome.config
    assert run.data.fingerprint == loaded.fingerprint
    chex.assert_trees_all_equal(run.params(), outcome.params())
