"""Scaled rotary positions."""

import pytest

from transformer.core.values import ConfigError
from transformer.positions.rotary import LinearScaling, Llama3Scaling, NTKScaling, YaRN


@pytest.mark.parametrize("kind", [LinearScaling, NTKScaling, YaRN, Llama3Scaling])
@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_scaling_is_for_longer_texts(kind, factor):
    assert kind(factor=1.0).factor == 1
    with pytest.raises(ConfigError, match=rf"{kind.name}\.factor: {factor} is less than 1, .*; use none"):
        kind(factor=factor)
