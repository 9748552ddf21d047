"""Batch norm with frozen statistics folded into the frozen convolution before it.

Frozen batch norm is `conv(x, w) * scale + shift` with constant vectors. The scale moves into w; the
shift stays behind as the bias. The gradient to x is unchanged, since the function is.
"""

from collections.abc import Set

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node, Value, replace_operands, resolve
from pockengine.compiler.passes.fold_constants import fixed_values

LINEAR = {"conv2d": 1, "matmul": 1}
"""Ops linear in the operand at this position, whose last axis is the result's."""


def fold_scales(graph: Graph, written: Set[str]) -> None:
    """Move constant per-channel factors into the fixed weight that they multiply.

    Requires: constants folded. Leaves: no `mul` of a convolution or product with fixed weight, used
    only there, by a fixed vector over its channels.
    """
    fixed = fixed_values(graph, written)
    replacement: dict[Value, Value] = {}
    for node in list(graph.nodes):
        node.operands = tuple(resolve(value, replacement) for value in node.operands)
        if node.op != "mul":
            continue
        for linear_result, scale in (node.operands, node.operands[::-1]):
            linear = linear_result.node
            if linear is not None and _folds(graph, linear, scale, fixed):
                _fold(graph, linear, fixed[scale], fixed)
                replacement[node.result] = linear_result
                break
    graph.nodes[:] = [n for n in graph.nodes if not any(r in replacement for r in n.results)]
    replace_operands(graph.nodes, replacement)
    graph.outputs = {name: resolve(value, replacement) for name, value in graph.outputs.items()}


def _folds(graph: Graph, linear: Node, scale: Value, fixed: dict[Value, np.ndarray]) -> bool:
    position = LINEAR.get(linear.op)
    if position is None or scale not in fixed or linear.operands[position] not in fixed:
        return False
    if linear.attrs.get("transpose_b", False):
        return False
    channels = linear.result.shape[-1]
    readers = graph.users().get(linear.result, [])
    return scale.shape in ((channels,), ()) and len(readers) == 1


def _fold(graph: Graph, linear: Node, scale: np.ndarray, fixed: dict[Value, np.ndarray]) -> None:
    position = LINEAR[linear.op]
    weight = linear.operands[position]
    with np.errstate(all="ignore"):  # what overflows does so in the program as well
        data = (fixed[weight].astype(np.float64) * scale).astype(np.float32)
    names = {value.name for value in graph.values()}
    name = f"{weight.name}.scaled"
    while name in names:
        name += "_"
    folded = Value(name, weight.type)
    fixed[folded] = graph.constants[folded] = data
    operands = list(linear.operands)
    operands[position] = folded
    linear.operands = tuple(operands)
