"""Rules of `legalize` for updates and masks: arithmetic, and an `assign` of each new content."""

from collections.abc import Mapping

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule
from pockengine.compiler.ir.writes import written_values
from pockengine.compiler.ops.shape import part_of_axis, slice_axis
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.errors import CompileError

Results = tuple[Value, ...]


def _update(g: Builder, node: Node) -> Results:
    """Compute the new content of each written operand, then assign them all."""
    param, *others = node.operands
    current = [_part(g, node, param), *others]
    new = FORMULAS[node.op](g, node, current)
    for value, content in zip(written_values(node), new, strict=True):
        g.emit("assign", value, _whole(g, node, param, content) if value is param else content)
    return ()


def _channels(node: Node) -> range | tuple[int, ...]:
    index: tuple[int, ...] | None = node.attrs["index"]
    return range(node.attrs["start"], node.attrs["stop"]) if index is None else index


def _part(g: Builder, node: Node, param: Value) -> Value:
    """The channels that the update writes."""
    axis = node.attrs.get("axis")
    return param if axis is None else part_of_axis(g, param, axis, _channels(node))


def _whole(g: Builder, node: Node, param: Value, part: Value) -> Value:
    """The param with the trained channels replaced."""
    axis = node.attrs.get("axis")
    if axis is None:
        return part
    pieces, end = [], 0
    for place, channel in enumerate(_channels(node)):
        if channel > end:
            pieces.append(slice_axis(g, param, axis, range(end, channel)))
        pieces.append(slice_axis(g, part, axis, range(place, place + 1)))
        end = channel + 1
    if end < param.shape[axis]:
        pieces.append(slice_axis(g, param, axis, range(end, param.shape[axis])))
    return g.emit("concat", *pieces, axis=axis).result


def _take_update(g: Builder, node: Node) -> Results:
    """The dense gradient of the table, and plain gradient descent."""
    param, dy, index, lr = node.operands
    grad = g.take_dx(dy, index, axis=node.attrs["axis"], input_shape=param.shape)
    g.emit("sgd_update", param, grad, lr)
    return ()


def _unpack_mask(g: Builder, node: Node) -> Results:
    """Use the mask itself; the packed bits then have no reader and are dead."""
    packed = node.operands[0].node
    if packed is None or packed.op != "pack_mask":
        raise CompileError(f"{node}: only what pack_mask packed can be kept unpacked")
    return (packed.operands[0],)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(FORMULAS.keys() - {"assign"}, _update),
    "take_update": _take_update,
    "unpack_mask": _unpack_mask,
}
