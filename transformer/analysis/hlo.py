"""The work of a compiled program, read from its text: products and collective operations, with loops counted.

XLA's own cost analysis counts the body of a loop once, and does not report what passes between devices.
"""

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
_ARRAY = re.compile(r"\b(" + "|".join(_BYTES) + r")\[([\d,]*)\]")
_COLLECTIVE = re.compile(
    r" = (?P<result>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\("
)
_HEADER = re.compile(r"^(?:ENTRY )?%?(?P<name>[^\s(]+) \(.*\{$")
_CALLED = re.compile(r"\b(?:calls|to_apply|body)=%?([\w.\-]+)")
_BRANCH = re.compile(r"\b(?:true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_SCOPE = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_NAMED = re.compile(r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>\w+\[[\d,]*\])")


@dataclass
class Work:
    """The work of one device in one call of a program."""

    products: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Operations of matrix products by the scopes they were traced in: a multiplication and an addition are two."""
    collective_bytes: Counter[str] = field(default_factory=Counter)
    """Bytes of the results of collective operations, by kind."""

    @property
    def flops(self) -> float:
        """Operations of all products."""
        return sum(self.products.values())

    def add(self, other: "Work", times: int) -> None:
        for scope, flops in other.products.items():
            self.products[scope] += times * flops
        for kind, size in other.collective_bytes.items():
            self.collective_bytes[kind] += times * size


def work_of(text: str) -> Work:
    """The work of a compiled program, given as `compiled.as_text()`.

    Products that XLA replaced by calls of a library are not seen; among branches the costliest counts.
    """
    computations, entry = _computations(text)
    done: dict[str, Work] = {}

    def work(name: str) -> Work:
        if name not in done:
            done[name] = _work_of_lines(computations.get(name, []), work)
        return done[name]

    return work(entry)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """(lines of each computation by name, name of the entry computation)."""
    found: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        if (header := _HEADER.match(line)) is not None:
            lines = found[header["name"]] = []
            entry = header["name"] if line.startswith("ENTRY") else entry
        else:
            lines.append(line)
    return found, entry


def _work_of_lines(lines: list[str], work) -> Work:
    total = Work()
    shapes = {named["name"]: named["shape"] for line in lines if (named := _NAMED.match(line))}
    for line in lines:
        if " dot(" in line:
            scope = _SCOPE.search(line)
            total.products[scope[1] if scope else ""] += _product_flops(line, shapes)
        elif (collective := _COLLECTIVE.search(line)) is not None:
            total.collective_bytes[collective["kind"]] += _bytes(collective["result"])
            continue
        trips = int(found[1]) if (found := _TRIPS.search(line)) else 1
        for name in _CALLED.findall(line):
            total.add(work(name), trips)
        branches = _BRANCH.findall(line) or re.findall(r"[\w.\-]+", "".join(_BRANCHES.findall(line)))
        if branches:
            total.add(max(map(work, branches), key=lambda one: one.flops), 1)
    return total


def _product_flops(line: str, shapes: dict[str, str]) -> float:
    operand = re.search(r" dot\((?:\w+\[[\d,]*\]\S* )?%?([\w.\-]+)", line)
    result = _ARRAY.search(line)
    assert operand is not None, line
    assert result is not None, line
    sizes = _sizes(shapes[operand[1]])
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", line)
    inner = [sizes[int(axis)] for axis in contracted[1].split(",")] if contracted else []
    return 2.0 * math.prod(_sizes(result[0])) * math.prod(inner)


def _sizes(shape: str) -> list[int]:
    inside = shape.partition("[")[2].rstrip("]")
    return [int(n) for n in inside.split(",")] if inside else []


def _bytes(text: str) -> int:
    return sum(_BYTES[dtype] * math.prod(_sizes(f"[{sizes}]")) for dtype, sizes in _ARRAY.findall(text))
