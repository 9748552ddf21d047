"""Valid ranges of integer inputs that are used as indices.

Ops that read at indices clamp invalid ones, so no data can read outside a tensor; cross entropy
makes the loss NaN. Neither helps a user with a wrong label. So the valid range of each index input
is derived here, and the runtime refuses other numbers before a step.

An index is traced back to its input through copies (reshape, slice, pad) and through elementwise
arithmetic with constants (a wrapped negative index, a masked label). The arithmetic is not analyzed
but evaluated, on all numbers around the range. A clamped index accepts every number, and one that
depends on more than one input has no range of its own: neither gets a range.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import I32, I64
from pockengine.compiler.ops.registry import Indices, lookup

_FAR = 2**30
"""A number no index reaches: if it is valid there, the index is clamped and needs no check."""
_DENSE = 65536
"""Maximum number of indices tried."""
_ELSEWHERE = -1
"""Marks an element that is not from the input: padding, or a constant."""


@dataclass(frozen=True)
class IndexRange:
    """Valid numbers of some elements of an input: low to high, or `also`.

    The elements are start + i * row_stride + j * stride for i < rows and j < count.
    """

    input: str
    low: int
    high: int
    also: int
    start: int
    rows: int
    row_stride: int
    count: int
    stride: int


@dataclass(frozen=True)
class _Source:
    """Origin of a value: an input's elements, and the functions applied to each."""

    input: Value
    positions: np.ndarray


def index_ranges(graph: Graph) -> list[IndexRange]:
    """Return the ranges of a graph's integer inputs, in the inputs' order, each once.

    If the graph does not check indices, only labels have ranges, since wrong ones make the loss
    NaN.
    """
    flow = _Flow(graph)
    found: dict[IndexRange, None] = {}
    for node, index in flow.readers:
        if not (graph.checks_indices or _indices(node).ignored):
            continue
        source = flow.source(index)
        accepted = None if source is None else flow.accepted(node, index, source.input)
        box = None if source is None else _box(source.positions)
        if source is not None and accepted is not None and box is not None:
            found[IndexRange(source.input.name, *accepted, *box)] = None
    order = [value.name for value in graph.inputs]
    return sorted(found, key=lambda range_: order.index(range_.input))


class _Flow:
    """A graph with fusion bodies inlined, for tracing backward."""

    def __init__(self, graph: Graph) -> None:
        self.inputs = {value for value in graph.inputs if value.dtype in (I32, I64)}
        self.constants = dict(graph.constants)
        self.alias: dict[Value, Value] = {}
        self.maker: dict[Value, Node] = {}
        self.readers: list[tuple[Node, Value]] = []
        self.sources: dict[Value, _Source | None] = {}
        for node in self._flat(graph):
            self.maker |= dict.fromkeys(node.results, node)
            if lookup(node.op).indices is not None:
                self.readers.append((node, node.operands[_indices(node).operand]))

    def _flat(self, graph: Graph) -> Iterator[Node]:
        for node in graph.nodes:
            body = node.attrs.get("body")
            if body is None:
                yield node
                continue
            self.alias |= dict(zip(body.inputs, node.operands, strict=True))
            self.alias |= dict(zip(node.results, body.outputs.values(), strict=False))
            self.constants |= body.constants
            yield from self._flat(body)

    def resolve(self, value: Value) -> Value:
        """Map a fusion's operands and results to the values they stand for."""
        while value in self.alias:
            value = self.alias[value]
        return value

    def source(self, value: Value) -> _Source | None:
        """Return the input from which a value's elements come, one function of each; else None."""
        value = self.resolve(value)
        if value not in self.sources:
            self.sources[value] = self._find_source(value)
        return self.sources[value]

    def _find_source(self, value: Value) -> _Source | None:
        if value in self.inputs:
            return _Source(value, np.arange(value.type.size).reshape(value.shape))
        node = self.maker.get(value)
        if node is None or not (_copies(node) or lookup(node.op).elementwise):
            return None
        sources = [self.source(v) for v in node.operands if not self._is_constant(v)]
        first = next(iter(sources), None)
        if first is None or any(s is None or s.input is not first.input for s in sources):
            return None
        if _copies(node):
            return self._copied(node, first)
        return self._combined([s for s in sources if s is not None], value)

    def _is_constant(self, value: Value) -> bool:
        return self.resolve(value) in self.constants

    def _copied(self, node: Node, first: _Source) -> _Source | None:
        """Move positions as a copy moves elements; its constant operands are no positions."""
        sources = (self.source(v) for v in node.operands)
        arrays = tuple(
            np.full(v.shape, _ELSEWHERE) if s is None else s.positions
            for v, s in zip(node.operands, sources, strict=True)
        )
        attrs = {**node.attrs, "value": _ELSEWHERE} if "value" in node.attrs else node.attrs
        return _Source(first.input, np.asarray(lookup(node.op).eval(arrays, attrs)[0]))

    def _combined(self, sources: list[_Source], value: Value) -> _Source | None:
        """All operands must hold the same element, or a constant, at each place."""
        places = [np.broadcast_to(s.positions, value.shape) for s in sources]
        if any(not np.array_equal(place, places[0]) for place in places[1:]):
            return None
        return _Source(sources[0].input, places[0])

    def accepted(self, node: Node, index: Value, source: Value) -> tuple[int, int, int] | None:
        """Return (low, high, also): the input's numbers that give a valid index."""
        size, ignored = _sound(node)
        constants: set[float] = set()
        cone = self._cone(index, source, constants)
        if cone is None:
            return None
        numbers = _numbers(size, {ignored, *(int(c) for c in constants if abs(c) < _FAR)})
        outcome = self._tried(cone, numbers, source)[self.resolve(index)]
        fine = ((outcome >= 0) & (outcome < size)) | (outcome == ignored)
        return _as_range(numbers, fine)

    def _cone(self, value: Value, source: Value, constants: set[float]) -> list[Value] | None:
        """List the values that a value is computed from, in order; None if a constant is not
        uniform.
        """
        order: dict[Value, None] = {}
        pending = [(self.resolve(value), False)]
        while pending:
            current, ready = pending.pop()
            if ready:
                order[current] = None
            elif current in self.constants:
                if np.unique(self.constants[current]).size != 1:
                    return None
                constants.add(float(self.constants[current].flat[0]))
                order[current] = None
            elif current not in order:
                pending.append((current, True))
                operands = () if current is source else self._read(self.maker[current])
                pending += [(operand, False) for operand in operands]
        return list(order)

    def _read(self, node: Node) -> list[Value]:
        """Return the operands that contribute to an element; a copy has one, without its
        padding.
        """
        operands = [self.resolve(v) for v in node.operands]
        if _copies(node):
            return [v for v in operands if v not in self.constants][:1]
        return operands

    def _tried(
        self, cone: list[Value], numbers: np.ndarray, source: Value
    ) -> dict[Value, np.ndarray]:
        """Compute every value of a cone, as one element, for each number."""
        known: dict[Value, np.ndarray] = {}
        for value in cone:
            if value is source:
                known[value] = numbers.astype(source.dtype.numpy)
            elif value in self.constants:
                known[value] = np.full(numbers.shape, self.constants[value].flat[0])
            else:
                node = self.maker[value]
                arrays = tuple(known[v] for v in self._read(node))
                copied = _copies(node)
                with np.errstate(all="ignore"):
                    result = arrays if copied else lookup(node.op).eval(arrays, node.attrs)
                known[value] = np.asarray(result[0])
        return known


def _indices(node: Node) -> Indices:
    indices = lookup(node.op).indices
    assert indices is not None
    return indices


def _copies(node: Node) -> bool:
    return lookup(node.op).copies


def _numbers(size: int, around: set[int]) -> np.ndarray:
    """Return sorted numbers to try: in and near the range, near constants, and far away."""
    edges = {factor * size for factor in (-2, -1, 0, 1, 2)}
    near = [n + step for n in around | edges for step in (-2, -1, 0, 1, 2)]
    between = range(-2 * size, 2 * size, max(1, size // _DENSE))
    return np.unique([-_FAR, *between, *near, _FAR])


def _sound(node: Node) -> tuple[int, int]:
    """Return a reader's number of indices, and one more number that it accepts (0 if none)."""
    indices = _indices(node)
    return indices.size(node), int(node.attrs[indices.ignored]) if indices.ignored else 0


def _as_range(numbers: np.ndarray, fine: np.ndarray) -> tuple[int, int, int] | None:
    """Describe the valid numbers as a range and one more; None if they have another form."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], fine.astype(np.int8), [0]])))
    runs = sorted(zip(ends[::2], ends[1::2], strict=True), key=lambda run: run[0] - run[1])
    if not runs or len(runs) > 2 or fine[0] or fine[-1]:
        return None
    (begin, end), other = runs[0], runs[-1]
    if other[1] - other[0] > 1 and len(runs) == 2:
        return None
    low, high = int(numbers[begin]), int(numbers[end - 1])
    whole = numbers[begin - 1] == low - 1 and numbers[end] == high + 1
    if not whole:
        return None
    return low, high, int(numbers[other[0]]) if len(runs) == 2 else low


def _box(positions: np.ndarray) -> tuple[int, int, int, int, int] | None:
    """Describe the input's elements among these as evenly spaced rows; None if they are not."""
    places = np.unique(positions[positions != _ELSEWHERE])
    if not places.size:
        return None
    steps = np.diff(places)
    stride = int(steps[0]) if steps.size else 1
    breaks = np.flatnonzero(steps != stride)
    count = int(breaks[0]) + 1 if breaks.size else places.size
    if places.size % count:
        return None
    rows = places.reshape(-1, count)
    row_stride = int(rows[1, 0] - rows[0, 0]) if len(rows) > 1 else 0
    whole = rows[0, 0] + row_stride * np.arange(len(rows))[:, None] + stride * np.arange(count)
    if not np.array_equal(whole, rows):
        return None
    return int(rows[0, 0]), len(rows), row_stride, count, stride
