"""Costs by part: they add up, and are XLA's."""

import dataclasses

import pytest

from transformer.analysis.breakdown import breakdown
from transformer.analysis.counts import cache_bytes, forward_flops, parameter_count
from transformer.mixers.attention.sparsity import SlidingWindow
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.stack import Scanned
from transformer.testing.subject import small

CONFIGS = {
    "decoder": small(),
    "scanned": small(layers=Scanned()),
    "encoder-decoder": small(EncoderDecoderConfig, layers=Scanned()),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_parts_add_up_and_are_those_of_xla(name):
    config, parts = CONFIGS[name], breakdown(CONFIGS[name])
    assert sum(part.parameters for part in parts.values()) == parameter_count(config)
    assert sum(part.parameter_bytes for part in parts.values()) == 4 * parameter_count(config)
    assert sum(part.flops for part in parts.values()) == forward_flops(config)
    for part in parts.values():
        assert part.flops == part.compiled_flops


def test_parts_by_hand():
    parts, (N, L, D, F, V, H, G, K) = breakdown(CONFIGS["decoder"]), (2, 12, 32, 24, 19, 4, 2, 8)
    assert parts["feed_forward"].parameters == N * 2 * D * F
    assert parts["feed_forward"].flops == 2 * L * parts["feed_forward"].parameters
    projections = D * (H + 2 * G) * K + H * K * D
    assert parts["attention"].parameters == N * projections
    assert parts["attention"].flops == 2 * N * L * (projections + 2 * H * K * L)
    assert parts["outside"].flops == 2 * L * D * V
    assert parts["attention_residual"].parameters == N * 2 * D
    sides = breakdown(CONFIGS["encoder-decoder"])
    assert {"encoder/attention", "decoder/attention", "decoder/cross_attention"} < set(sides)


def test_bytes_of_a_cache():
    config = dataclasses.replace(small(), max_length=64)
    assert cache_bytes(config, 40) == 40 * 2 * 2 * (2 * 8) * 4  # tokens, layers, keys and values, heads, float32
    assert cache_bytes(config.replace(dtype="bfloat16")) * 2 == cache_bytes(config)
    window = config.replace({"mixer.sparsity": SlidingWindow(8)})
    assert cache_bytes(window, 64) == cache_bytes(window, 40) == cache_bytes(config, 8)
