"""A choice of one's own, by the place of its class."""

import sys

import pytest

from experiments import check
from transformer.core.errors import ConfigError

NORMS = """
from dataclasses import dataclass
import transformer as T

@dataclass(frozen=True)
class Halved(T.Norm):
    '''x / divisor.'''
    divisor: float = 2.0
    bounds = False

    def __call__(self, x_BLD, params):
        return x_BLD / self.divisor

HALVED = Halved(4.0)
"""


def test_the_class_of_a_file_is_a_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "my_own_norms.py").write_text(NORMS)
    for place in ("my_own_norms", "my_own_norms.py"):
        assert str(check.chosen(f"{place}:Halved", None)) == "halved"
        assert str(check.chosen(f"{place}:Halved", "halved(divisor=3.0)")) == "halved(divisor=3.0)"
        assert str(check.chosen(f"{place}:HALVED", None)) == "halved(divisor=4.0)"
        with pytest.raises(ConfigError, match="has no variant 'Halfed'; did you mean 'Halved'"):
            check.chosen(f"{place}:Halfed", None)
        with pytest.raises(ConfigError, match=r"^check: 'rmsnorm' is a RMSNorm, no Halved$"):
            check.chosen(f"{place}:Halved", "rmsnorm")
    with pytest.raises(ConfigError, match=r"^check: Norm has no __call__$"):
        check.chosen("transformer.norms.norm:Norm", None)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("Halved", "'Halved' is not of the form MODULE:CLASS or FILE.py:CLASS"),
        ("gone.py:Halved", "no file gone.py"),
        ("gone:Halved", "no module 'gone' from"),
    ],
)
def test_a_place_that_is_none(monkeypatch, place, line):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ConfigError, match=line):
        check.chosen(place, None)


def test_what_does_not_hold_is_named(monkeypatch, capsys):
    """And the exit code is 1; what is refused, is so with a reason."""

    class Checked:
        passed, refused = ("decoder, causal",), {"encoder": "too small"}

    def wrong(value):
        raise AssertionError(f"{value}: decoder, causal: it sees the future; decoder, cached: other numbers")

    monkeypatch.setattr(sys, "argv", ["check", "transformer.norms.norm:RMSNorm"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("transformer.testing.check.check_variant", lambda value: Checked)
    check.main()
    assert capsys.readouterr().out == "refused in encoder: too small\nrmsnorm: 1 properties hold\n"
    monkeypatch.setattr("transformer.testing.check.check_variant", wrong)
    with pytest.raises(SystemExit) as stop:
        check.main()
    assert stop.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "rmsnorm: decoder, causal: it sees the future",
        "  decoder, cached: other numbers",
        "rmsnorm does not hold",
    ]
