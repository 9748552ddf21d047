"""Updates of params stored in fewer bits: arithmetic in f32, then stochastic rounding.

A step is mostly smaller than the spacing of numbers with 8 significant bits: rounded to nearest,
the param would never change (Gupta et al., ICML'15, "Deep learning with limited numerical
precision").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pockengine.compiler.controls import SEED
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import F32, I32, DType, TensorType
from pockengine.compiler.ops.random import MIXER
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import PART, updated_type
from pockengine.compiler.optim.base import control
from pockengine.compiler.optim.formulas import FORMULAS

_UPPER, _LOW = 0xFFFF0000, 0xFFFF
"""The f32 bits that bf16 has, and those that it lacks."""


def rounded_update(g: Builder, node: Node, small: Mapping[int, Value]) -> None:
    """Emit an update with bf16 params at these operand positions, stochastically rounded."""
    operands = [*node.operands, control(g, SEED)]
    for place, value in small.items():
        operands[place] = value
    written = written_operands(node)

    def build(g: Builder, inner: list[Value]) -> list[Value]:
        wide = [
            g.cast(value, dtype=F32.value) if place in small else value
            for place, value in enumerate(inner)
        ]
        new = FORMULAS[node.op](g, node, wide[:-1])
        return [
            _rounded(g, value, inner[-1]) if place in small else value
            for place, value in zip(written, new, strict=True)
        ]

    body = update_body(node, [value.type for value in operands], build)
    g.emit("elementwise_update", *operands, body=body, writes=written, **part_of(node))


def _rounded(g: Builder, value: Value, seed: Value) -> Value:
    """Round to bf16 stochastically: up or down with probability by distance.

    The random number is a hash of the bits that stay and of the step's seed; NaN stays NaN.
    """

    def number(of: int) -> Value:
        return g.scalar(of - (of >> 31 << 32), I32)

    bits = g.float_bits(value)
    upper = g.bit_and(bits, number(_UPPER))
    chance = g.bit_xor(upper, seed)  # these bits only: rounding differences do not change it
    for shift, factor in MIXER:
        moved = g.bit_and(g.shift_right(chance, number(shift)), number((1 << (32 - shift)) - 1))
        chance = g.bit_xor(chance, moved)
        chance = chance if factor == 1 else g.mul(chance, number(factor))
    raised = g.add(bits, g.bit_and(chance, number(_LOW)))
    cut = g.bits_float(g.bit_and(raised, number(_UPPER)))
    return g.cast(g.where(g.eq(value, value), cut, value), dtype=DType.BF16.value)


def replaced(graph: Graph, param: Value, contents: Contents) -> Value:
    """Replace a param by one of another type, under its name."""
    value = Value(param.name, contents.type)
    graph.params[param.name] = replace(graph.params[param.name], value=value, contents=contents)
    return value


def update_body(
    node: Node, types: Sequence[TensorType], build: Callable[[Builder, list[Value]], list[Value]]
) -> Graph:
    """Return a graph from the trained part of a param and other operands to the update's
    results.
    """
    body = Graph("update")
    g = Builder(body)
    seen = [updated_type(types[0], node.attrs), *types[1:]]
    inner = [g.input(f"x{place}", type_) for place, type_ in enumerate(seen)]
    for place, value in enumerate(build(g, inner)):
        g.output(f"new_{place}", value)
    return body


def part_of(node: Node) -> dict[str, object]:
    """Return which channels an update writes."""
    return {name: node.attrs[name] for name in PART}
