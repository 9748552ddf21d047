"""Algebraic simplification: local rules that replace a node by a cheaper value.

A rule takes one node and returns the replacement of its result, or None.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.passes.base import Pass

Rule = Callable[[Builder, Node], Value | None]


@dataclass(frozen=True)
class Simplify(Pass):
    """Apply `RULES` to every node, once, in order; operands are simplified before their users.

    Leaves: dead nodes, for dead code elimination.
    """

    def run(self, graph: Graph) -> None:
        rewrite(graph, _simpler)


def _simpler(g: Builder, node: Node) -> tuple[Value] | None:
    values = (rule(g, node) for rule in RULES.get(node.op, ()))
    value = next((value for value in values if value is not None), None)
    return None if value is None else (value,)


def _number(g: Builder, value: Value) -> float | None:
    """Return the number that all elements of a constant equal, if there is one."""
    data = g.graph.constants.get(value)
    if data is None or data.size == 0 or not np.all(data == data.flat[0]):
        return None
    return float(data.flat[0])


def _neutral(number: float, sides: tuple[int, ...]) -> Rule:
    """Build x op number => x, if the other operand has the result's shape."""

    def rule(g: Builder, node: Node) -> Value | None:
        for side in sides:
            other = node.operands[1 - side]
            if other.type == node.result.type and _number(g, node.operands[side]) == number:
                return other
        return None

    return rule


def _same_type(_: Builder, node: Node) -> Value | None:
    """Reshape, cast or broadcast to x's own type => x."""
    return node.operands[0] if node.operands[0].type == node.result.type else None


def _merge_reshapes(g: Builder, node: Node) -> Value | None:
    """reshape(reshape(x)) => reshape(x)."""
    inner = node.operands[0].node
    if inner is None or inner.op != "reshape":
        return None
    return g.reshape(inner.operands[0], shape=node.attrs["shape"])


def _bias_before_reshape(g: Builder, node: Node) -> Value | None:
    """reshape(a b) + bias => reshape(a b + bias): the bias then fuses with the product."""
    for y, bias in (node.operands, node.operands[::-1]):
        inner = y.node.operands[0] if y.node is not None and y.node.op == "reshape" else None
        if inner is None or inner.node is None or inner.node.op != "matmul":
            continue
        if bias.shape == inner.shape[-1:] == y.shape[-1:] and y.type == node.result.type:
            return g.reshape(g.add(inner, bias), shape=y.shape)
    return None


def _merge_transposes(g: Builder, node: Node) -> Value | None:
    """transpose(transpose(x)) => one transpose, or x."""
    inner, perm = node.operands[0].node, node.attrs["perm"]
    if perm == tuple(range(len(perm))):
        return node.operands[0]
    if inner is None or inner.op != "transpose":
        return None
    merged = tuple(inner.attrs["perm"][axis] for axis in perm)
    x = inner.operands[0]
    return x if merged == tuple(range(len(merged))) else g.transpose(x, perm=merged)


def _trivial_transpose(g: Builder, node: Node) -> Value | None:
    """Only dimensions of size 1 move => reshape, which copies nothing."""
    shape, perm = node.operands[0].shape, node.attrs["perm"]
    moving = [axis for axis in perm if shape[axis] != 1]
    return (
        g.reshape(node.operands[0], shape=node.result.shape) if moving == sorted(moving) else None
    )


def _double_neg(_: Builder, node: Node) -> Value | None:
    """-(-x) => x."""
    inner = node.operands[0].node
    return inner.operands[0] if inner is not None and inner.op == "neg" else None


def _empty_pad(_: Builder, node: Node) -> Value | None:
    """Zero-width pad => x."""
    return node.operands[0] if not any((*node.attrs["low"], *node.attrs["high"])) else None


def _join_pads(g: Builder, node: Node) -> Value | None:
    """pad(x) + pad(y), zeros around neighbors along one axis => pad(concat(x, y))."""
    first, second = (value.node for value in node.operands)
    if first is None or second is None or not first.op == second.op == "pad":
        return None
    if first.attrs["value"] or second.attrs["value"] or first.result.type != second.result.type:
        return None
    lows = first.attrs["low"], second.attrs["low"]
    apart = [axis for axis, (a, b) in enumerate(zip(*lows, strict=True)) if a != b]
    if len(apart) != 1:
        return None
    axis = apart[0]
    if lows[0][axis] > lows[1][axis]:
        first, second = second, first
    x, y = first.operands[0], second.operands[0]
    alike = (*x.shape[:axis], *x.shape[axis + 1 :]) == (*y.shape[:axis], *y.shape[axis + 1 :])
    if not alike or first.attrs["low"][axis] + x.shape[axis] != second.attrs["low"][axis]:
        return None
    parts = [part for value in (x, y) for part in _parts(value, axis)]
    high = (
        *first.attrs["high"][:axis],
        second.attrs["high"][axis],
        *first.attrs["high"][axis + 1 :],
    )
    return g.pad(g.emit("concat", *parts, axis=axis).result, low=first.attrs["low"], high=high)


def _parts(value: Value, axis: int) -> tuple[Value, ...]:
    """Operands of a concat along the axis; any other value is a single part."""
    node = value.node
    return (
        node.operands if node and node.op == "concat" and node.attrs["axis"] == axis else (value,)
    )


def _scalar_broadcast(g: Builder, node: Node) -> Value | None:
    """Elementwise ops broadcast implicitly: read the operand of broadcast_to instead."""
    operands = tuple(_unbroadcast(value) for value in node.operands)
    if operands == node.operands:
        return None
    shapes = np.broadcast_shapes(*(value.shape for value in operands))
    return g.emit(node.op, *operands, **node.attrs).result if shapes == node.result.shape else None


def _same_choice(_: Builder, node: Node) -> Value | None:
    """where(c, x, x) => x."""
    a, b = node.operands[1:]
    return a if a is b and a.type == node.result.type else None


def _known_choice(g: Builder, node: Node) -> Value | None:
    """where(all true, x, y) => x, as transformers masks inputs that have no padding; or y."""
    condition = _number(g, node.operands[0])
    chosen = node.operands[1 if condition else 2]
    return chosen if condition is not None and chosen.type == node.result.type else None


def _single_summand(g: Builder, node: Node) -> Value | None:
    """Sum or mean along dimensions of size 1 => reshape(x), which needs no kernel or scratch."""
    (x,) = node.operands
    if any(x.shape[axis] != 1 for axis in node.attrs["axes"]):
        return None
    return x if x.type == node.result.type else g.reshape(x, shape=node.result.shape)


def _unbroadcast(value: Value) -> Value:
    node = value.node
    return node.operands[0] if node is not None and node.op == "broadcast_to" else value


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_neutral(0.0, (0, 1)), _join_pads, _scalar_broadcast, _bias_before_reshape),
    "sub": (_neutral(0.0, (1,)), _scalar_broadcast),
    "mul": (_neutral(1.0, (0, 1)), _scalar_broadcast),
    "div": (_neutral(1.0, (1,)), _scalar_broadcast),
    "where": (_same_choice, _known_choice, _scalar_broadcast),
    "neg": (_double_neg,),
    "reshape": (_same_type, _merge_reshapes),
    "broadcast_to": (_same_type,),
    "cast": (_same_type,),
    "transpose": (_merge_transposes, _trivial_transpose),
    "pad": (_empty_pad,),
    "slice": (_same_type,),
    "reduce_sum": (_single_summand,),
    "reduce_mean": (_single_summand,),
}
