"""A short convolution of queries, keys and values."""

from dataclasses import dataclass

import numpy as np
import pytest

from transformer.core.values import ConfigError
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.testing.properties import cached
from transformer.testing.subject import Subject, small


def test_a_convolution_begins_as_none(attention, run):
    """The kernel is 1 at the token itself and 0 before it."""
    convolved = attention(parts=(ShortConvolution(3),))
    np.testing.assert_allclose(run(convolved)[0], run(attention())[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_width_is_remembered(width):
    cached(Subject(small(**{"mixer.parts": (ShortConvolution(width),)})))


def test_a_layer_remembers_one_convolution():
    @dataclass(frozen=True)
    class Another(ShortConvolution):
        name = "another_convolution"

    with pytest.raises(ConfigError, match=r"mixer.parts: .*another_convolution.* both convolve"):
        small(**{"mixer.parts": (ShortConvolution(), Another())})
