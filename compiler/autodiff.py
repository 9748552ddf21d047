"""Reverse-mode differentiation of a graph, at compile time, for just the values that train.

The forward part is marked first: only values that depend on something in `wrt` get a cotangent, so
what lies below the lowest trained weight is never differentiated, nor what `stop_gradient` hides.
Cotangents that meet at a value used several times are summed.
"""

from collections.abc import Mapping

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.custom import CUSTOM
from pockengine.compiler.ops.elementwise import STOP
from pockengine.compiler.ops.registry import ChannelSet, lookup
from pockengine.errors import CompileError

Channels = ChannelSet | None
"""Which channels of a weight train: a range, or sorted indices; None for all of them."""


def backward(
    g: Builder, loss: Value, wrt: Mapping[Value, Channels], seed: Value | None = None
) -> dict[Value, Value]:
    """Append the backward nodes of the scalar `loss`; return the gradient of each value in `wrt`.

    Gradients are those of the loss times `seed`, an f32[], by default 1.
    A value with some channels gets the gradient of those only. Values that `loss` does not
    depend on are absent from the result.
    """
    if loss.type != TensorType(F32, ()):
        raise CompileError(
            f"the loss must be a scalar f32, not {loss!r}; reduce it, for instance with a mean"
        )
    forward = list(g.graph.nodes)
    needed = _depend_on(forward, wrt)
    if loss not in needed:
        return {}
    cotangents: dict[Value, Value] = {loss: g.scalar(1.0) if seed is None else seed}
    for node in reversed(forward):
        dy = _cotangent(node, cotangents)
        if dy is not None:
            with g.scope(node.scope):
                if node.op == CUSTOM:
                    _differentiate_custom(g, node, dy, forward, needed, cotangents)
                else:
                    _differentiate(g, node, dy, needed, wrt, cotangents)
    return {value: cotangents[value] for value in wrt if value in cotangents}


def influences(graph: Graph, result: Value) -> set[Value]:
    """Return the values that `result` has a gradient for, itself included."""
    found = {result}
    for node in reversed(graph.nodes):
        if node.op != STOP and any(value in found for value in node.results):
            found.update(operand for operand in node.operands if operand.dtype.differentiable)
    return found


def _depend_on(nodes: list[Node], wrt: Mapping[Value, Channels]) -> set[Value]:
    needed = set(wrt)
    for node in nodes:
        if node.op != STOP and any(operand in needed for operand in node.operands):
            needed.update(result for result in node.results if result.dtype.differentiable)
    return needed


def _cotangent(node: Node, cotangents: Mapping[Value, Value]) -> Value | None:
    if any(result in cotangents for result in node.results[1:]):
        raise CompileError(f"{node}: only its first result is differentiable")
    return cotangents.get(node.results[0]) if node.results else None


def _differentiate(
    g: Builder,
    node: Node,
    dy: Value,
    needed: set[Value],
    wrt: Mapping[Value, Channels],
    cotangents: dict[Value, Value],
) -> None:
    definition = lookup(node.op)
    for index, operand in enumerate(node.operands):
        if operand not in needed or not operand.dtype.differentiable:
            continue
        channels = wrt.get(operand)
        if channels is not None:
            dx = definition.channel_vjp[definition.operand_name(index)](g, node, dy, channels)
        else:
            rule = definition.vjp_rule(index)
            if rule is None:
                name = definition.operand_name(index)
                raise CompileError(
                    f"{node}: {node.op} has no gradient for its operand {name}; "
                    f"freeze what {operand!r} depends on"
                )
            dx = rule(g, node, dy)
        _add(g, cotangents, operand, dx)


def _add(g: Builder, cotangents: dict[Value, Value], operand: Value, dx: Value) -> None:
    before = cotangents.get(operand)
    cotangents[operand] = dx if before is None else g.add(before, dx)


def _differentiate_custom(
    g: Builder,
    node: Node,
    dy: Value,
    forward: list[Node],
    needed: set[Value],
    cotangents: dict[Value, Value],
) -> None:
    """Compute the user's formula again, with the cotangent in its place."""
    _, cotangent, *pairs = node.operands
    wanted = {dx for x, dx in zip(pairs[::2], pairs[1::2], strict=True) if x in needed}
    read = _ancestors(wanted)
    known = {cotangent: dy}
    for inner in forward:
        if not read.isdisjoint(inner.results) and any(x in known for x in inner.operands):
            copy = g.emit(inner.op, *(known.get(x, x) for x in inner.operands), **inner.attrs)
            known.update(zip(inner.results, copy.results, strict=True))
    for x, dx in zip(pairs[::2], pairs[1::2], strict=True):
        if x in needed:
            _add(g, cotangents, x, known.get(dx, dx))


def _ancestors(values: set[Value]) -> set[Value]:
    """Return values and all that they are computed from."""
    seen: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            waiting.extend(value.node.operands if value.node else ())
    return seen
