"""Options are compiled for devices that are named."""

from transformer.mixers.convolution import Convolution
from transformer.testing.elsewhere import check_elsewhere


def test_a_mixer_is_compiled_that_knows_no_heads():
    """On one device; what needs four, or no causal model, is refused."""
    checked = check_elsewhere("cpu:1", {"mixer": Convolution(width=4)})
    assert checked.passed == ["two replicas, step", "decoder, decoding"]
    assert set(checked.refused) == {"2 x 2", "encoder"}
