import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.core.files import Damaged
from transformer.training.metrics import METRICS, charged, line_of, read_curve, read_metrics


@pytest.fixture
def workdir(tmp_path):
    """Two replicas: the second diverges, and a line of it is being written."""
    lines = [
        {"step": 2, "replica": 0, "loss": 3.0},
        {"step": 2, "replica": 1, "loss": 4.0},
        {"step": 2, "replica": 0, "validation_loss": 2.5},
        {"step": 4, "replica": 0, "loss": 2.0},
        {"step": 4, "replica": 1, "loss": None},
    ]
    (tmp_path / METRICS).write_text("".join(map(line_of, lines)) + '{"step": 4, "repl')
    return tmp_path


def test_a_curve_has_a_row_for_each_replica_and_nan_where_it_has_no_value(workdir):
    steps_S, values_RS = read_curve(workdir, "loss", 2)
    np.testing.assert_array_equal(steps_S, [2, 4])
    np.testing.assert_array_equal(values_RS, [[3, 2], [4, np.nan]])
    np.testing.assert_array_equal(read_curve(workdir, "validation_loss", 2).values_RS, [[2.5], [np.nan]])


def test_an_incomplete_line_is_left_out(workdir):
    assert len(read_metrics(workdir)) == 5


@pytest.mark.parametrize("number", range(5))
def test_a_changed_bit_of_a_line_is_found(workdir, number):
    """Wherever it is; the line is named."""
    path = workdir / METRICS
    lines = path.read_bytes().splitlines(keepends=True)
    for at in range(len(lines[number]) - 1):
        changed = lines[number][:at] + bytes([lines[number][at] ^ 1]) + lines[number][at + 1 :]
        path.write_bytes(b"".join([*lines[:number], changed, *lines[number + 1 :]]))
        with pytest.raises(Damaged, match=r"metrics\.jsonl, line "):
            read_metrics(workdir)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"metrics\.jsonl: cannot be read: No such file"):
        read_metrics(tmp_path)


def test_what_was_not_measured_is_named(workdir):
    with pytest.raises(ConfigError, match="no 'los'; did you mean 'loss'"):
        read_curve(workdir, "los", 2)


@pytest.mark.parametrize(
    ("costs", "guess", "expected"),
    [
        ([0.1, np.nan, 0.3], 0.2, [0.1, 0.3, 0.3]),
        ([0.1, np.inf, 0.3], 0.5, [0.1, 0.5, 0.3]),
        ([0.1, np.nan, 0.3], np.inf, [0.1, 0.3, 0.3]),
        ([np.nan, np.inf], 0.5, [0.5, 0.5]),
        ([np.nan, np.inf], np.inf, [0.0, 0.0]),
    ],
)
def test_what_a_failed_run_costs(costs, guess, expected):
    """Where no guess is known, as of a regression, one failure bans no rate."""
    np.testing.assert_array_equal(charged(np.array(costs), guess), expected)
