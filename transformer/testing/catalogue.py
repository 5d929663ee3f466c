"""The catalogue of all variants as a page, made from the variants themselves."""

import functools
import inspect
import re
from pathlib import Path
from typing import Any

from transformer.analysis.counts import forward_flops, parameter_count
from transformer.core.documentation import documented
from transformer.core.errors import ConfigError
from transformer.core.values import Variant, to_text
from transformer.mixers.attention.backends import Chunked
from transformer.models.config import ModelConfig
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.stack import Scanned
from transformer.testing.check import refusals
from transformer.testing.covering import Covering, Option
from transformer.testing.options import FACTORS, FAMILIES, Changes
from transformer.testing.subject import small

PATH = Path(__file__).parents[1] / "CATALOGUE.md"
_EITHER: tuple[dict[str, Any], ...] = ({}, {"causal": False})
_PLACES: dict[str, list[tuple[type[ModelConfig], dict[str, Any]]]] = {
    "causal": [(ModelConfig, {})],
    "encoder": [(ModelConfig, {"causal": False})],
    "cross": [(EncoderDecoderConfig, {})],
    "chunked": [(ModelConfig, {**causal, "mixer.backend": Chunked()}) for causal in _EITHER],
    "scan": [(ModelConfig, {**causal, "layers": Scanned()}) for causal in _EITHER],
}
"""By name the models that an option may be in, one of which is enough."""
YEAR = re.compile(r"\b(19|20)\d\d\b")


def catalogue(covering: Covering) -> str:
    """The page in Markdown: a table for each family, then the pairs that are refused."""
    plain = small()
    parts = [
        "# Catalogue\n\nWritten by `python -m transformer.testing --catalogue` from the values themselves; a test "
        "fails when it is stale. Parameters and operations are those added to a plain decoder of "
        f"{parameter_count(plain):,} parameters ({plain.num_layers} layers, d_model {plain.d_model}, "
        f"`mixer={plain.mixer}`, `feed_forward={plain.feed_forward}`, "
        f"{plain.max_length} tokens). Operations are those of matrix products; scores that a mask hides are computed, "
        "so that a sparsity saves none, and norms, activations and softmax do not count. It works with a decoder "
        "(causal) and its cache, an encoder, an encoder–decoder (cross), `mixer.backend=chunked` and `layers=scanned` "
        "(scan).\n"
    ]
    parts += [_family(name, options) for name, options in FAMILIES.items()]
    return "\n".join([*parts, _refused(covering)])


def _family(name: str, options: list[Changes]) -> str:
    rows = [
        f"## {name.capitalize()}\n",
        "| option | what it is | parameters | operations | works with |",
        "|---|---|---|---|---|",
        *(_row(option) for option in options),
    ]
    return "\n".join(rows) + "\n"


@functools.cache
def _cost(config: ModelConfig) -> tuple[int, float]:
    """Number of parameters, and operations of a forward pass."""
    return parameter_count(config), forward_flops(config)


def _row(option: Changes) -> str:
    works = [place for place in _PLACES if _fits(place, option)]
    causal = "causal" in works
    config, plain = small(**{"causal": causal, **option}), small(causal=causal)
    own, usual = _cost(config), _cost(plain)
    parameters, flops = own[0] - usual[0], own[1] / usual[1] - 1
    cells = (_name(option), _words(option), f"{parameters:+,}", f"{flops:+.1%}", ", ".join(works))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _fits(place: str, option: Changes) -> bool:
    return any(_possible(kind, {**more, **option}) for kind, more in _PLACES[place])


def _possible(kind: type[ModelConfig], choices: Changes) -> bool:
    try:
        small(kind, **choices)
    except ConfigError:
        return False
    return True


def _name(option: Changes) -> str:
    return " ".join(f"`{field}={to_text(value)}`" for field, value in option.items()) or "(plain)"


def _words(option: Changes) -> str:
    """The class of each value with what it is and its source, or what the fields are."""
    values = [one for value in option.values() for one in (value if isinstance(value, tuple) else (value,))]
    docs = {type(value).__name__: _said(type(value)) for value in values if isinstance(value, Variant)}
    if docs:
        return " ".join(f"`{name}`: {doc}" for name, doc in docs.items())
    if any(value is None and "." not in field for field, value in option.items()):
        return "Left out."
    return " ".join(_field(field) for field in option)


def _said(cls: type) -> str:
    """The first paragraph of a docstring, and where that names no year the first later one that does."""
    first, *later = (" ".join(part.split()) for part in (inspect.getdoc(cls) or "").split("\n\n"))
    source = next((part for part in later if YEAR.search(part)), "")
    return first if YEAR.search(first) or not source else f"{first} {source}"


def _field(path: str) -> str:
    """What the docstring of a field says."""
    *names, last = path.split(".")
    return documented(type(functools.reduce(getattr, names, small()))).get(last, "")


def _refused(covering: Covering) -> str:
    """The refused pairs, grouped by reason."""
    lines: dict[str, list[str]] = {}
    for (left, right), reason in covering.refused.items():
        if ": no field " in reason:
            continue
        pair = " with ".join(_name(_changes(option)) for option in (left, right))
        lines.setdefault(reason, []).append(pair)
    alone = [
        f"- {_name(option)} in a decoder: {reason}"
        for values in FAMILIES.values()
        for option in values
        if (reason := refusals(option).get("decoder"))
    ]
    pairs = [f"- {', '.join(names)}: {reason}" for reason, names in lines.items()]
    absent = "- A field below `mixer`, `feed_forward` or another value that the other option replaces or leaves out."
    return "\n".join(["## Refused\n", *alone, absent, *pairs]) + "\n"


def _changes(option: Option) -> Changes:
    name, i = option
    return FACTORS[name][i]
