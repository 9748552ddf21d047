"""Report which ops of a quantized graph compute with integers, which with real numbers, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.integers import FIXED
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import F32, DType
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.forward.infer import InferOnly
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.compiler.passes.integers.integer_products import MOST_TERMS, terms

INTEGER_ARITHMETIC = ("add", "mul")
"""Ops besides products and means that compute with integers."""

INTEGERS, REAL = "int8", "f32"


@dataclass(frozen=True)
class Arithmetic:
    """Ops of one kind in one layer; `why` is empty if they compute with integers."""

    layer: str
    op: str
    numbers: str
    why: str = ""


def arithmetic(quantized: Graph, rounding: str = FIXED) -> tuple[Arithmetic, ...]:
    """List the ops of prediction on activations, in order, without repeats.

    `rounding` is as in `Integers`.
    """
    graph = clone(quantized)
    InferOnly(loss=False).run(graph)
    HoldIntegers().run(graph)
    IntegerArithmetic(rounding=rounding).run(graph)
    computed = set(graph.inputs)
    lines: dict[Arithmetic, None] = {}
    for node in graph.nodes:
        activations = [value for value in node.operands if value in computed]
        if not activations:
            continue
        computed.update(node.results)
        line = _line(node, activations)
        definition = lookup(node.op)
        helps = line.numbers == INTEGERS and not definition.product and len(activations) == 1
        if not (helps or definition.converts or definition.copies):
            lines.setdefault(line)
    return tuple(lines)


def _line(node: Node, activations: Sequence[Value]) -> Arithmetic:
    real = F32 in {value.dtype for value in (*activations, *node.results)}
    why = _why(node, activations) if real else ""
    return Arithmetic(node.scope, node.op, REAL if real else INTEGERS, why)


def _why(node: Node, activations: Sequence[Value]) -> str:
    """Return why a node computes with real numbers."""
    definition = lookup(node.op)
    if not definition.product:
        sums = definition.means or node.op in INTEGER_ARITHMETIC
        known = sums and any(_integers(value) is not None for value in activations)
        return "its result is not rounded to int8" if known else f"{node.op} has no int8 meaning"
    if any(_integers(value) is not DType.I8 for value in node.operands):
        both = (
            "one of its two activations" if len(activations) > 1 else "its activation or its weight"
        )
        return f"{both} is not held as int8"
    if terms(node) > MOST_TERMS:
        return f"{terms(node):,} products may overflow a sum of 32 bits; {MOST_TERMS:,} fit"
    return "scales differ along what it sums over"


def _integers(value: Value) -> DType | None:
    """Return the integer type of a value, or of the value it dequantizes."""
    node = value.node
    if node is not None and node.op == "dequantize":
        value = node.operands[0]
    return None if value.dtype is F32 else value.dtype
