"""Graph queries shared by the rules of idioms."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pockengine.compiler.ir import F32, Builder, Graph, Value
from pockengine.compiler.ir.graph import Node

Rule = Callable[["Finder", Node], Value | None]
Rules = Mapping[str, tuple[Rule, ...]]
"""Rules by the op of the matched node."""

SHAPING = ("reshape", "broadcast_to")
STOPPING = (*SHAPING, "stop_gradient")

DEPTH = 4
"""How deep sums and products are split: norms nest no further, and paths would double."""


class Finder:
    """A graph with its builder, and the batch norms recognized so far."""

    def __init__(self, graph: Graph) -> None:
        self.g = Builder(graph)
        self.statistics: dict[Value, Value] = {}
        """A batch norm's statistics, computed by separate nodes: the op's own."""

    def number(self, value: Value) -> float | None:
        """Return the number that all elements of a value equal, if it is constant."""
        data = self.g.graph.constants.get(core(value))
        if data is None or not data.size or not np.all(data == data.flat[0]):
            return None
        number = data.flat[0]
        # The shortest decimal of the same f32: as the user wrote it.
        return float(str(number)) if data.dtype == F32.numpy else float(number)

    def split(self, node: Node) -> tuple[Value, float] | None:
        """Split a commutative node into a value and a number."""
        for a, b in (node.operands, node.operands[::-1]):
            number = self.number(b)
            if number is not None and self.number(a) is None:
                return a, number
        return None

    def linear(self, value: Value, factor: float = 1.0) -> Iterator[tuple[float, Value]]:
        """Split a value into (factor, part) by sums and by products with numbers."""
        for sign, term in terms(value):
            node = term.node
            parts = self.split(node) if node is not None and node.op == "mul" else None
            if parts is None:
                yield factor * sign, term
            else:
                yield from self.linear(parts[0], factor * sign * parts[1])


def core(value: Value, through: tuple[str, ...] = SHAPING) -> Value:
    """Look through reshapes and repeats; callers check the shape if it matters."""
    while value.node is not None and value.node.op in through:
        value = value.node.operands[0]
    return value


def unbroadcast(value: Value) -> Value:
    """Skip nodes that implicit broadcasting makes unnecessary: repeats, leading dimensions of size
    1.
    """
    node = value.node
    while node is not None and (node.op == "broadcast_to" or _adds_ones(node)):
        value = node.operands[0]
        node = value.node
    return value


def _adds_ones(node: Node) -> bool:
    """Whether a node only adds or drops leading dimensions of size 1."""
    if node.op != "reshape":
        return False
    old, new = node.operands[0].shape, node.result.shape
    short = min(len(old), len(new))
    cut = len(old) - short, len(new) - short
    return old[cut[0] :] == new[cut[1] :] and not {*old[: cut[0]], *new[: cut[1]]} - {1}


def made_by(value: Value, op: str) -> Node | None:
    """Return the node of this op that computes a value, reshapes and repeats aside."""
    node = core(value).node
    return node if node is not None and node.op == op else None


def terms(value: Value, sign: int = 1, depth: int = DEPTH) -> Iterator[tuple[int, Value]]:
    """Split a sum into its terms, as (sign, value)."""
    node = value.node
    if node is None or node.op not in ("add", "sub", "neg") or not depth:
        yield sign, value
        return
    if node.op != "neg":
        yield from terms(node.operands[0], sign, depth - 1)
    second = sign if node.op == "add" else -sign
    yield from terms(node.operands[-1], second, depth - 1)


def factors(value: Value, depth: int = DEPTH) -> tuple[int, list[Value]]:
    """Split a product into its sign and its factors; the product broadcasts them."""
    inner = unbroadcast(value)
    node = inner.node
    if node is None or node.op not in ("mul", "neg") or not depth:
        return 1, [inner]
    sign, first = factors(node.operands[0], depth - 1)
    if node.op == "neg":
        return -sign, first
    other_sign, others = factors(node.operands[1], depth - 1)
    return sign * other_sign, first + others


def squared(value: Value) -> Value | None:
    """Return the value whose square this is."""
    node = value.node
    if node is None or node.op not in ("square", "mul"):
        return None
    return node.operands[0] if node.operands[0] is node.operands[-1] else None


def reduced_last(node: Node | None) -> bool:
    """Whether a reduction is over the last axis alone."""
    return node is not None and node.attrs["axes"] == (len(node.operands[0].shape) - 1,)
