"""A small part of what `python -m transformer.testing` checks in full, and that its page is up to date."""

import functools
import itertools
import typing
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import pytest

from transformer.core.errors import ConfigError
from transformer.core.parameters import Constant, Parameter
from transformer.inference.tokenwise import Greedy
from transformer.norms.norm import Norm, RMSNorm
from transformer.positions.position import Position
from transformer.runs.tokenizers import Char
from transformer.testing.__main__ import main, part
from transformer.testing.catalogue import PATH, catalogue
from transformer.testing.check import Checked, check_choices, check_combination, check_variant
from transformer.testing.covering import cover, merged
from transformer.testing.options import FACTORS, FAMILIES

OPTIONS = [option for options in FAMILIES.values() for option in options]


@functools.cache
def covering():
    """Rows that hold every pair: half a minute, and not while tests are collected."""
    return cover(FACTORS)


def name(changes):
    return ",".join(f"{field}={value}" for field, value in changes.items()) or "plain"


@pytest.mark.parametrize("option", part(OPTIONS, 7, 43), ids=name)
def test_an_option_in_every_context(option):
    """Nothing fails, and at least one context takes it."""
    checked = check_choices(option)
    assert not checked.failed
    assert checked.passed


@pytest.mark.parametrize("number", range(6))
def test_a_combination(number):
    """One option of each family, together."""
    row = part(covering().rows, 100, 260)[number]
    assert not check_combination(merged(FACTORS, row)).failed


@pytest.mark.parametrize("n", [1, 6, 400])
def test_the_parts_together_are_everything(n):
    """Each option is in one of them, and they are of nearly one size."""
    parts = [part(OPTIONS, k, n) for k in range(1, n + 1)]
    assert sorted(name(option) for each in parts for option in each) == sorted(map(name, OPTIONS))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("wrong", ["0/6", "7/6", "2", "2/", "/6", "1.5/6", "-1/6"])
def test_a_part_that_there_is_not(wrong, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["testing", f"--part={wrong}"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"{wrong!r} is not K/N, such as 2/6" in capsys.readouterr().err


def test_every_pair_is_covered():
    """Each pair of options of two kinds is in a row, or is refused with a reason, and never both."""
    held = {pair for row in covering().rows for pair in itertools.permutations(row.items(), 2)}
    every = {
        ((left, i), (right, j))
        for a, left in enumerate(FACTORS)
        for right in list(FACTORS)[a + 1 :]
        for i in range(len(FACTORS[left]))
        for j in range(len(FACTORS[right]))
    }
    refused = {pair for pair in every if pair in covering().refused or pair[::-1] in covering().refused}
    assert every - refused <= held
    assert not refused & held
    assert covering().pairs == len(every - refused)


def test_the_catalogue_is_up_to_date():
    """`python -m transformer.testing --catalogue` writes what is there."""
    assert PATH.read_text() == catalogue(covering())


@dataclass(frozen=True)
class PowerNorm(Norm):
    name = "norm_from_outside"  # other tests have a norm of that class name, and text forms are by name
    power: float = 2.0

    def parameters(self, d_model):
        return {"gain": Parameter((d_model,), Constant(1.0))}

    def __call__(self, x_BLD, params):
        x = x_BLD.astype(jnp.float32)
        size = (jnp.abs(x) ** self.power).mean(-1, keepdims=True) ** (1 / self.power)
        return (x / (size + 1e-6) * params["gain"]).astype(x_BLD.dtype)


@dataclass(frozen=True)
class LeakyNorm(PowerNorm):
    """Wrong: its mean is over tokens."""

    name = "leakynorm"

    def __call__(self, x_BLD, params):
        return x_BLD / (jnp.abs(x_BLD).mean((1, 2), keepdims=True) + 1e-6) * params["gain"]


@dataclass(frozen=True)
class Alone(PowerNorm):
    """Wrong: it takes no parameters."""

    name = "without_parameters"

    def __call__(self, x_BLD):  # pyright: ignore[reportIncompatibleMethodOverride]
        return x_BLD


@dataclass(frozen=True)
class Nowhere(Position):
    """Wrong: it says that it orders tokens, and does not."""

    relative: ClassVar[bool] = False


def test_a_variant_from_outside():
    """A right one passes in every context; a wrong one is told what is wrong with it."""
    checked = check_variant(PowerNorm(3.0))
    assert {text.split(",")[0] for text in checked.passed} == {"decoder", "encoder", "cross", "text"}
    assert not checked.refused
    with pytest.raises(AssertionError, match=r"leakynorm: decoder, causal: logits change with a later token"):
        check_variant(LeakyNorm())
    with pytest.raises(AssertionError, match=r"the order of tokens does not matter"):
        check_variant(Nowhere())
    with pytest.raises(AssertionError, match=r"^without_parameters: decoder, \w+ and \d+ more: TypeError: [^;]*$"):
        check_variant(Alone())


def test_a_variant_that_no_model_takes():
    """A value without a place is named."""
    with pytest.raises(ConfigError, match=r"^char: a Tokenization cannot be checked: no choice of a model, and"):
        check_variant(Char())
    with pytest.raises(ConfigError, match=r"^check_variant: d_model: greedy is checked without a model that has it$"):
        check_variant(Greedy(), d_model=64)
    with pytest.raises(ConfigError, match=r"^check_variant: .* the class RMSNorm is given; RMSNorm\(\) is a"):
        check_variant(typing.cast(typing.Any, RMSNorm))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TypeError("types differ:\n\nx is bfloat16.\n\nRevise it."), "TypeError: types differ: x is bfloat16."),
        (ValueError("wrong shape\nfor more see elsewhere"), "ValueError: wrong shape"),
        (NotImplementedError(), "NotImplementedError: "),
    ],
)
def test_what_an_error_says_is_kept(error, said):
    """JAX announces in the first line and says it in the next."""

    def fails():
        raise error

    checked = Checked({})
    checked.run("decoder", "scanned", fails)
    assert checked.failed == [f"decoder, scanned: {said}"]
