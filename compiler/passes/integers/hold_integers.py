"""Store quantized parameters as integers: i8 weights replace the real ones.

Before this pass a graph computes with real weights, so schemes, adapters and differentiation need
no integer support. Now each reader dequantizes them, and an update writes integers. A step is
mostly smaller than the distance of two integers: the rounding remainder is stored as a second i8,
in 256ths of that distance, and added at the next step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents, Filled, Lazy, ShapeOnly
from pockengine.compiler.ir.graph import Graph, Node, Param, ParamKind, Value
from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import F32, DType, Shape, TensorType
from pockengine.compiler.ir.writes import written_values
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import PART, updated_part, updated_type
from pockengine.compiler.optim.base import STATE_PREFIX
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.passes.base import Pass
from pockengine.errors import CompileError

LIMIT = 127
"""Weights are symmetric: -128 has no counterpart."""

PARTS = 256
"""Units of the remainder per integer."""


@dataclass(frozen=True)
class HoldIntegers(Pass):
    """Store each param with `held` as integers; with `scaled` optimizers see real numbers.

    Without it they see the integers and their gradients, as if there were no scales. Leaves: i8 in
    place of each real param with `held`, read through a `dequantize`.
    """

    scaled: bool = True

    def run(self, graph: Graph) -> None:
        real: dict[Value, Value] = {}
        integers: dict[Value, Param] = {}
        first: list[Node] = []
        g = Builder(graph)
        with g.into(first):
            for param in list(graph.params.values()):
                if param.quantization is not None and param.value.dtype is F32:
                    made = integers[param.value] = _as_integers(param, param.quantization)
                    graph.params[param.name] = made
                    scales = g.constant(scales_of(param.quantization, param.value.shape))
                    real[param.value] = g.dequantize(made.value, scales)

        graph.nodes[:0] = first

        def rule(g: Builder, node: Node) -> tuple[Value, ...] | None:
            written = [integers[value] for value in written_values(node) if value in integers]
            if not written:
                node.operands = tuple(real.get(value, value) for value in node.operands)
                return None
            _update(g, node, written[0], self.scaled)
            return ()

        rewrite(graph, rule)
        graph.outputs = {name: real.get(value, value) for name, value in graph.outputs.items()}


def _as_integers(param: Param, quantization: Quantization) -> Param:
    type_ = TensorType(DType.I8, param.value.shape)
    contents: Contents = ShapeOnly(type_)
    if (source := param.contents).known:
        contents = Lazy(
            type_, lambda: quantization.integers(source.read(), LIMIT), f"param {param.name}"
        )
    return replace(param, value=Value(param.name, type_), contents=contents)


def scales_of(quantization: Quantization, shape: Shape) -> np.ndarray:
    """Return the scales as an array that broadcasts to a tensor of this shape."""
    if quantization.axis is None:
        return np.array(quantization.scales[0], np.float32)
    ones = (1,) * len(shape[quantization.axis + 1 :])
    return np.array(quantization.scales, np.float32).reshape(-1, *ones)


def _update(g: Builder, node: Node, param: Param, scaled: bool) -> None:
    """Write the integers nearest to the result of the update's formula, and the remainder."""
    if node.op not in FORMULAS or param.quantization is None:
        raise CompileError(
            f"{node}: {node.op} updates no integers; let {param.name} stay real, or freeze it"
        )
    _, grad, *others = node.operands
    chosen = {name: node.attrs[name] for name in PART}
    part = updated_type(param.value.type, chosen)
    scales = scales_of(param.quantization, param.value.shape)
    if scales.ndim and chosen["axis"] == len(param.value.shape) - scales.ndim:
        scales = scales[updated_part({**chosen, "axis": 0})]
    state = f"{STATE_PREFIX}remainder.{param.name}"
    remainder = g.param(state, Filled(part), trainable=False, kind=ParamKind.OPTIMIZER)
    # With the inverse, no element is divided: four divisions take a Cortex-A72 14 cycles.
    factors = (scales, 1 / scales) if scaled else (scales,)
    operands = (grad, *others, *map(g.constant, factors), remainder)
    g.emit(
        "elementwise_update",
        param.value,
        *operands,
        body=_body(node, (part, *(value.type for value in operands)), scaled),
        writes=(*written_operands(node), len(operands)),
        **chosen,
    )


def _body(node: Node, types: Sequence[TensorType], scaled: bool) -> Graph:
    """Return the formula on integers: (param, grad, others..., scales, remainder) to new ones.

    The unit is the distance of two integers. If `scaled`, 1 / scales comes after the scales.
    """
    body = Graph("update")
    g = Builder(body)
    integers, grad, *others, remainder = (
        g.input(f"x{index}", type_) for index, type_ in enumerate(types)
    )
    inverse = others.pop() if scaled else None
    scale = others.pop()
    fraction = g.mul(g.cast(remainder, dtype=F32.value), g.scalar(1 / PARTS))
    units = g.add(g.cast(integers, dtype=F32.value), fraction)
    if inverse is not None:
        new, *states = FORMULAS[node.op](g, node, [g.mul(units, scale), grad, *others])
        units = g.mul(new, inverse)
    else:
        units, *states = FORMULAS[node.op](g, node, [units, g.mul(grad, scale), *others])
    nearest = g.quantize(units, g.scalar(1.0), low=-LIMIT, high=LIMIT)
    left = g.sub(units, g.cast(nearest, dtype=F32.value))
    results = (nearest, *states, g.quantize(left, g.scalar(1 / PARTS)))
    for place, value in enumerate(results):
        g.output(f"new_{place}", value)
    return body
