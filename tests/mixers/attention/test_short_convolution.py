"""A short convolution of queries, keys and values."""

import numpy as np

from transformer.mixers.attention.short_convolution import ShortConvolution


def test_a_convolution_begins_as_none(attention, run):
    """The kernel is 1 at the token itself and 0 before it."""
    convolved = attention(parts=(ShortConvolution(3),))
    np.testing.assert_allclose(run(convolved)[0], run(attention())[0], rtol=1e-5, atol=1e-6)
