"""The work of a compiled program, read from its text: products, collective operations and cycles, with loops counted.

XLA's own cost analysis counts the body of a loop once, and does not report what passes between devices. Programs for
CPUs have products as `dot`, those for GPUs as calls of cuBLAS too, those for TPUs as `convolution`, and only the first
two say how often a loop runs.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}
_ARRAY = re.compile(r"\b(" + "|".join(_BYTES) + r")\[([\d,]*)\]")
_COLLECTIVE = re.compile(
    r" = (?P<result>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?P<start>-start)?\("
)
_HEADER = re.compile(r"^(?:ENTRY )?%?(?P<name>[^\s(]+) \(.*\{$")
_CALLED = re.compile(r"\b(?P<how>calls|to_apply|body)=%?(?P<name>[\w.\-]+)")
_CONDITION = re.compile(r"\bcondition=%?([\w.\-]+)")
_BRANCH = re.compile(r"\b(?:true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_CHAIN = re.compile(r"\bchannel_id=(\d+).*\bchain_id=")
_SCOPE = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_NAMED = re.compile(r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>\w+\[[\d,]*\])")
_INSTRUCTION = re.compile(r"^\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = .*? (?P<kind>[a-z][\w\-]*)\((?P<inside>[^)]*)\)")
_CONTRACTED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)')
_WINDOW = re.compile(r"\bwindow=\{([^}]*)\}")
_LABELS = re.compile(r"\bdim_labels=(\w+)_(\w+)->(\w+)")


class Collective(NamedTuple):
    """A kind of operation between devices."""

    kind: str
    """`all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or `collective-permute`."""
    devices: int
    """How many devices take part in each; 0: all."""


@dataclass
class Work:
    """The work of one device in one call of a program."""

    products: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Operations of matrix products by the scopes they were traced in: a multiplication and an addition are two."""
    collective_bytes: Counter[Collective] = field(default_factory=Counter)
    """Bytes of the results of collective operations, by kind and number of devices."""
    cycles: int = 0
    """Cycles that a TPU's compiler expects of its own operations, without those between devices; 0 elsewhere."""

    @property
    def flops(self) -> float:
        """Operations of all products."""
        return sum(self.products.values())

    def add(self, other: "Work", times: int) -> None:
        for scope, flops in other.products.items():
            self.products[scope] += times * flops
        for kind, size in other.collective_bytes.items():
            self.collective_bytes[kind] += times * size
        self.cycles += times * other.cycles


def work_of(text: str) -> Work:
    """The work of a compiled program, given as `compiled.as_text()`.

    Products within kernels, and by libraries other than cuBLAS, are not seen; among branches the costliest counts.

    Raises:
      ValueError: the text does not say how often a loop runs.
    """
    computations, entry = _computations(text)
    done: dict[str, Work] = {}
    channels: set[str] = set()

    def work(name: str) -> Work:
        if name not in done:
            lines = [line for line in computations.get(name, []) if not _counted_before(line, channels)]
            done[name] = _work_of_lines(lines, work, lambda *loop: _trips(computations, *loop))
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


def _work_of_lines(lines: list[str], work: Callable[[str], Work], trips: Callable[[str, str], int]) -> Work:
    total = Work()
    shapes = {named["name"]: named["shape"] for line in lines if (named := _NAMED.match(line))}
    for line in lines:
        for name, flops_of in _PRODUCTS.items():
            if name in line:
                scope = _SCOPE.search(line)
                total.products[scope[1] if scope else ""] += flops_of(line, shapes)
        total.cycles += int(found[1]) if (found := _CYCLES.search(line)) else 0
        if (collective := _COLLECTIVE.search(line)) is not None:
            kind = Collective(collective["kind"], _group_size(line))
            total.collective_bytes[kind] += _result_bytes(collective)
            continue
        for called in _CALLED.finditer(line):
            times = 1
            if called["how"] == "body":
                known, condition = _TRIPS.search(line), _CONDITION.search(line)
                assert condition is not None, line
                times = int(known[1]) if known else trips(condition[1], called["name"])
            total.add(work(called["name"]), times)
        branches = _BRANCH.findall(line) or re.findall(r"[\w.\-]+", "".join(_BRANCHES.findall(line)))
        if branches:
            total.add(max(map(work, branches), key=lambda one: one.flops), 1)
    return total


def _counted_before(line: str, channels: set[str]) -> bool:
    """Whether a collective operation is of one of the channels that were met, to which it is added: on TPUs one that
    overlaps with products is written out again within each of these."""
    if (found := _CHAIN.search(line)) is None or _COLLECTIVE.search(line) is None:
        return False
    before = found[1] in channels
    channels.add(found[1])
    return before


def _result_bytes(collective: re.Match[str]) -> int:
    """Bytes of the result; the start of one that overlaps with other work has its operands in the result too."""
    arrays = _ARRAY.findall(collective["result"])
    if collective["start"] and collective["result"].startswith("("):
        largest = max(arrays, key=lambda array: _array_bytes(*array), default=None)
        several = collective["result"].startswith("((")
        arrays = arrays[len(arrays) // 2 :] if several else [largest] if largest else []
    return sum(_array_bytes(*array) for array in arrays)


def _array_bytes(dtype: str, sizes: str) -> int:
    return _BYTES[dtype] * math.prod(_sizes(f"[{sizes}]"))


def _group_size(line: str) -> int:
    """How many devices take part in a collective operation: groups are lists, or [groups, size], or axes of a mesh."""
    if (axes := re.search(r"replica_groups=mesh\[([^\]]*)\]\S* \{([^}]*)\}", line)) is not None:
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", axes[1]))
        return math.prod(int(sizes[name]) for name in re.findall(r"'([^']+)'", axes[2]))
    if (counted := re.search(r"replica_groups=\[\d+,(\d+)\]<=", line)) is not None:
        return int(counted[1])
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    return len(listed[1].split(",")) if listed else 0


def _trips(computations: dict[str, list[str]], condition: str, body: str) -> int:
    """How often a loop runs whose counter begins at 0, from what its condition compares and its body adds."""
    asked, done = (_instructions(computations[name]) for name in (condition, body))
    compare = next((line for line in asked.values() if line.kind == "compare" and line.root), None)
    result = next((line for line in done.values() if line.kind == "tuple" and line.root), None)
    if compare is not None and result is not None and "direction=LT" in compare.text:
        counter, limit = (_origin(asked, name) for name in compare.operands)
        index = re.search(r"index=(\d+)", counter.text) if counter else None
        step = _origin(done, result.operands[int(index[1])]) if index else None
        if limit is not None and limit.kind == "constant" and step is not None and step.kind == "add":
            added = [one for name in step.operands if (one := _origin(done, name)) and one.kind == "constant"]
            if len(added) == 1:
                return -(-int(limit.inside) // int(added[0].inside))
    raise ValueError(f"compiled program: no number of turns in the loop {body}")


class _Instruction(NamedTuple):
    kind: str
    inside: str
    root: bool
    text: str

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.inside)


def _instructions(lines: list[str]) -> dict[str, _Instruction]:
    found = (_INSTRUCTION.match(line) for line in lines)
    return {
        one["name"]: _Instruction(one["kind"], one["inside"], bool(one["root"]), one.string) for one in found if one
    }


def _origin(instructions: dict[str, _Instruction], name: str) -> _Instruction | None:
    """The instruction behind copies."""
    found = instructions.get(name)
    while found is not None and found.kind in ("copy", "bitcast"):
        found = instructions.get(found.operands[0])
    return found


def _dot_flops(line: str, shapes: dict[str, str]) -> float:
    sizes = _sizes(_operand_shape(line, shapes, 0))
    contracted = _CONTRACTED.search(line)
    inner = [sizes[int(axis)] for axis in re.findall(r"\d+", contracted[1])] if contracted else []
    return 2.0 * math.prod(_result_sizes(line)) * math.prod(inner)


def _convolution_flops(line: str, shapes: dict[str, str]) -> float:
    """Operations on elements that exist: in a batched product on a TPU the window meets one of them at a time."""
    labels, window = _LABELS.search(line), _WINDOW.search(line)
    assert labels is not None, line
    sizes_of = [
        dict(zip(names, sizes, strict=True))
        for names, sizes in zip(
            labels.groups(),
            (*(_sizes(_operand_shape(line, shapes, i)) for i in range(2)), _result_sizes(line)),
            strict=True,
        )
    ]
    lhs, rhs, out = sizes_of
    fields = dict(part.split("=") for part in window[1].split()) if window else {}
    places = 1
    for axis, name in enumerate(sorted(name for name in rhs if name.isdigit())):
        places *= _places(lhs[name], out[name], *_window(fields, axis))
    return 2.0 * out["b"] * out["f"] * rhs["i"] * places


def _window(fields: dict[str, str], axis: int) -> tuple[int, int, int, int, int]:
    """(size, stride, padding before, dilation of the left, dilation of the right) along one axis."""
    size, stride, left, right = (
        int(fields[name].split("x")[axis]) if name in fields else 1
        for name in ("size", "stride", "lhs_dilate", "rhs_dilate")
    )
    pad = int(fields["pad"].split("x")[axis].split("_")[0]) if "pad" in fields else 0
    return size, stride, pad, left, right


def _places(length: int, out: int, size: int, stride: int, pad: int, left: int, right: int) -> int:
    """How many pairs of a result and an element of the window meet an element of the left side."""
    positions = (o * stride + w * right - pad for o in range(out) for w in range(size))
    return sum(at % left == 0 and 0 <= at // left < length for at in positions)


_PRODUCTS = {
    " dot(": _dot_flops,
    'custom_call_target="__cublas$': _dot_flops,
    " convolution(": _convolution_flops,
}


def _operand_shape(line: str, shapes: dict[str, str], index: int) -> str:
    """The shape of an operand, which stands before its name or where that was made."""
    inside = re.search(r" (?:dot|convolution|custom-call)\((.*?)\)(?:, |$)", line)
    assert inside is not None, line
    found = re.findall(r"(?:(\w+\[[\d,]*\])\S* )?%([\w.\-]+)", inside[1])[index]
    return found[0] or shapes[found[1]]


def _result_sizes(line: str) -> list[int]:
    result = _ARRAY.search(line)
    assert result is not None, line
    return _sizes(result[0])


def _sizes(shape: str) -> list[int]:
    inside = shape.partition("[")[2].rstrip("]")
    return [int(n) for n in inside.split(",")] if inside else []
