"""The cost of each part of a model: parameters, bytes and operations, our count and XLA's."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import jax

from transformer.analysis.counts import scoped_flops
from transformer.analysis.hlo import work_of
from transformer.models.build import pure_model
from transformer.models.config import ModelConfig


class PartCost(NamedTuple):
    """The cost of a part in all layers together, for a forward pass of one sequence of full length."""

    parameters: int
    parameter_bytes: int
    flops: float
    """Operations of the matrix products in the traced program."""
    compiled_flops: float
    """Operations of those in the program XLA compiles, without products that it leaves to a library."""


def breakdown(config: ModelConfig) -> dict[str, PartCost]:
    """The cost of each part by name; the model is compiled, and not run.

    The parts are the sublayers (`attention`, `feed_forward`, …), the norms and factors around them
    (`attention_residual`, …), and what is outside of the blocks: parameters by their names, and the products of
    embeddings and logits as `outside`. In an encoder-decoder all names begin with `encoder/` or `decoder/`.
    """
    params, apply = pure_model(config)
    inputs = config.example_inputs()
    counts, sizes = Counter[str](), Counter[str]()
    traced, compiled = defaultdict[str, float](float), defaultdict[str, float](float)
    for path, leaf in jax.tree.leaves_with_path(params):
        part = _of_parameter([str(key.key) for key in path])
        counts[part] += math.prod(leaf.shape)
        sizes[part] += math.prod(leaf.shape) * leaf.dtype.itemsize
    for scope, flops in scoped_flops(jax.make_jaxpr(apply)(params, *inputs).jaxpr).items():
        traced[_of_scope(scope.split("/"))] += flops
    program = jax.jit(apply).lower(params, *inputs).compile().as_text() or ""
    for scope, flops in work_of(program).products.items():
        compiled[_of_scope(scope.split("/"))] += flops
    names = dict.fromkeys([*counts, *traced, *compiled])
    return {name: PartCost(counts[name], sizes[name], traced[name], compiled[name]) for name in names}


def _of_parameter(path: Sequence[str]) -> str:
    """The part of a parameter: `decoder/blocks/kinds/0/attention/…` to `decoder/attention`."""
    if "kinds" not in path:
        return "/".join(path[: 2 if path[0] in ("encoder", "decoder") else 1])
    return "/".join([*path[: path.index("blocks")], path[path.index("kinds") + 2]])


def _of_scope(scopes: Sequence[str]) -> str:
    """The part of a scope: `jit(…)/decoder/blocks[0::1]/attention/…` to `decoder/attention`."""
    side = [scope for scope in scopes if scope in ("encoder", "decoder")]
    inside = [after for scope, after in itertools.pairwise(scopes) if scope.startswith("blocks[")]
    return "/".join([*side, *inside[:1]]) if inside else "outside"
