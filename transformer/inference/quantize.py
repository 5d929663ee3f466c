"""Parameters in 8 bits, for decoding."""

import re
from typing import Any

from transformer.core.errors import ConfigError
from transformer.core.int8 import Int8
from transformer.core.modules import Params

KERNELS = re.compile(r".*/(query|key|value|out|branches/\d+)/kernel")
"""The matrices of attention and feed-forward layers."""


def quantize(params: Params) -> Params:
    """The parameters with the matrices of attention and feed-forward layers as `Int8`; the others are as they were.

    A pure model, or `generate`, takes them in place of the parameters, and multiplies integers. There are no gradients.
    Experts stay as they are. `experiments.benchmarks decoding` measures the speed, `experiments.benchmarks.parity` the
    loss.

    Raises:
      ConfigError: there is no such matrix.
    """
    if not isinstance(params, dict):
        given = type(params).__name__
        raise ConfigError(f"quantize: parameters are needed, and {given} is given; split(model)[0] has them")
    found = []

    def changed(tree: Any, path: str) -> Any:
        if isinstance(tree, dict):
            return {name: changed(below, f"{path}/{name}") for name, below in tree.items()}
        if not KERNELS.fullmatch(path):
            return tree
        if isinstance(tree, Int8):
            raise ConfigError(f"quantize: {path.lstrip('/')} is in 8 bits already")
        found.append(path)
        return Int8.of(tree)

    quantized = changed(params, "")
    if not found:
        raise ConfigError("quantize: no parameter is the kernel of an attention or feed-forward layer")
    return quantized
