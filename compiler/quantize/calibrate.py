"""Calibration: from a forward graph of real numbers and samples to a quantized graph.

The result still computes with real numbers: future i8 values pass through a `quantize` and a
`dequantize`, and weights have their quantization in `held`. So schemes, adapters and
differentiation need no integer support; the passes of `passes/integers/` run after them. Quantized
are the inputs of layers with a weight, the summands of residual sums, and averages over an image;
biases, losses and all other arithmetic stay real.
"""

from collections.abc import Mapping, Sequence, Set

import numpy as np

from pockengine.compiler.channel_readers import before_reshapes
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import Graph, Node, Param, ParamKind, Value, replace_operands
from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import F32, DType, TensorType
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.forward.infer import InferOnly
from pockengine.compiler.quantize.fold_norms import FoldedNorm, fold_norms
from pockengine.compiler.quantize.ranges import HIGH, LOW, METHODS, QuantizedRange, range_of
from pockengine.errors import CompileError

"""Ops that only clamp, with their limits; clamp and hardtanh have limits as attrs."""

Batch = Mapping[str, np.ndarray]


def quantized(
    forward: Graph,
    batches: Sequence[Batch],
    *,
    method: str = "minmax",
    share: float = 1e-4,
    inputs: Sequence[str] = (),
) -> tuple[Graph, tuple[FoldedNorm, ...]]:
    """Return the graph, quantized by ranges on batches of its inputs, and the norms folded in it.

    The named `inputs` become i8, with the samples' ranges.

    `method` and `share` are those of `ranges.py`. CompileError names a tensor without a range, or a
    graph in which nothing can be quantized.
    """
    if method not in METHODS or not batches:
        what = f"method {method!r}" if batches else "batch to calibrate on"
        raise CompileError(f"there is no {what}; give batches, and one of {', '.join(METHODS)}")
    graph = clone(forward)
    norms = fold_norms(graph)
    layers = _layers(graph)
    if not layers:
        raise CompileError(_without_layers(graph))
    for layer in layers:
        param = graph.params[layer.operands[1].name]
        param.quantization = _weight_scales(layer, param)
    points = _points(graph, layers)
    ranges = _ranges(graph, points, batches, method=method, share=share)
    unread = sorted(set(inputs) - {value.name for value in graph.inputs if value in ranges})
    if unread:
        raise CompileError(
            f"inputs {unread} cannot be int8: no layer or sum reads one of this name"
        )
    insert_ranges(graph, ranges, frozenset(inputs))
    return graph, norms


def _layers(graph: Graph) -> list[Node]:
    """Layers whose weights can be stored as integers: all readers of a weight are equal layers."""
    users = graph.users()
    layers = (node for node in graph.nodes if lookup(node.op).layer is not None)
    return [node for node in layers if refusal(graph, node, users) is None]


def refusal(graph: Graph, layer: Node, users: Mapping[Value, Sequence[Node]]) -> str | None:
    """Return why a layer's weight cannot be stored as integers; None if it can."""
    param = graph.param_of(layer.operands[1])
    if param is None:
        reshaped = graph.param_of(before_reshapes(layer.operands[1]))
        return f"{reshaped.name} is read reshaped" if reshaped else "it multiplies two activations"
    if param.value.dtype is not F32 or layer.operands[0].dtype is not F32:
        return f"it multiplies {layer.operands[0].dtype.value} by {param.value.dtype.value}"
    if param.kind is not ParamKind.WEIGHT:
        return f"{param.name} is no weight but a {param.kind.value}"
    if layer.attrs.get("transpose_a"):
        return "its activation is read transposed"
    if layer.op == "matmul" and len(param.value.shape) != 2:
        return f"{param.name} has a matrix for each batch"
    others = [reader for reader in users[param.value] if lookup(reader.op).layer is None]
    if others:
        return f"{param.name} is read by {others[0].op} too"
    if len({_feature_axis(reader) for reader in users[param.value]}) > 1:
        return f"{param.name} is read along two axes"
    return None


def _without_layers(graph: Graph) -> str:
    """Return why nothing in a graph can be stored as integers."""
    users, reasons = graph.users(), []
    for node in graph.nodes:
        if lookup(node.op).layer is not None:
            place = f"{node.op} in {node.scope}" if node.scope else str(node)
            reasons.append(f"{place} stays f32, as {refusal(graph, node, users)}")
    why = "; ".join(reasons[:3]) or "it has no convolution or matmul whose weight is a param"
    return f"nothing in {graph.name} has a meaning in integers: {why}; leave quantize= out"


def _feature_axis(layer: Node) -> int:
    """Axis of the weight along which a layer's features lie."""
    weight = layer.operands[1]
    return len(weight.shape) - (2 if layer.attrs.get("transpose_b") else 1)


def _weight_scales(layer: Node, param: Param) -> Quantization:
    """Return a scale per feature: its largest weight becomes 127."""
    axis = _feature_axis(layer)
    weight = param.data.astype(np.float64)
    largest = np.abs(weight).max(axis=tuple(i for i in range(weight.ndim) if i != axis))
    if not np.isfinite(largest).all() or not largest.any():
        what = "0 everywhere" if not largest.any() else "not finite"
        raise CompileError(
            f"{layer}: weight {param.name} is {what}, so its integers have no scale; give the "
            "model trained weights"
        )
    smallest = largest[largest > 0].min()
    scales = np.where(largest > 0, largest, smallest).astype(np.float32) / np.float32(HIGH)
    return Quantization(tuple(map(float, scales)), (0,) * len(scales), axis)


def _points(graph: Graph, layers: Sequence[Node]) -> dict[Value, Node]:
    """Values that become i8, each with a reader that requires it."""
    reads = [(layer.operands[0], layer) for layer in layers]
    for node in graph.nodes:
        if lookup(node.op).means and len(node.operands[0].shape) == 4:
            reads.append((node.operands[0], node))
        elif node.op == "add" and _is_residual(node):
            reads += [(operand, node) for operand in node.operands]
    points: dict[Value, Node] = {}
    for value, node in reads:
        root = _source(value)
        if root.dtype is F32 and graph.param_of(root) is None and root not in graph.constants:
            points.setdefault(root, node)
    return points


def _is_residual(node: Node) -> bool:
    """Whether both summands are activations of an image or of a sequence."""
    shapes = {operand.shape for operand in node.operands}
    made = all(operand.node is not None for operand in node.operands)
    return made and len(shapes) == 1 and len(node.result.shape) >= 3


def _source(value: Value) -> Value:
    """Return the value of which another is a copy: its integers are moved, not requantized."""
    while value.node is not None and _moves(value.node):
        value = value.node.operands[0]
    return value


def _moves(node: Node) -> bool:
    return lookup(node.op).copies and len(node.operands) == 1 and "value" not in node.attrs


def _ranges(
    graph: Graph, points: Mapping[Value, Node], batches: Sequence[Batch], method: str, share: float
) -> dict[Value, QuantizedRange]:
    """Run the graph in evaluation mode on each batch, and choose a range for each point."""
    names = {f"{index}": value for index, value in enumerate(points)}
    watched = clone(graph)
    copies = dict(zip(graph.values(), watched.values(), strict=True))
    watched.outputs = {name: copies[value] for name, value in names.items()}
    InferOnly(loss=False).run(watched)
    needed = {value.name for value in watched.inputs}
    seen = [run(watched, {k: v for k, v in batch.items() if k in needed}) for batch in batches]
    ranges = {}
    for name, value in names.items():
        try:
            ranges[value] = range_of([outputs[name] for outputs in seen], method, share)
        except CompileError as error:
            maker, reader = value.node or "an input", points[value]
            raise CompileError(
                f"{value!r}, made by {maker} and read by {reader}, has no range: {error}"
            ) from error
    return ranges


def insert_ranges(graph: Graph, ranges: Mapping[Value, QuantizedRange], arriving: Set[str]) -> None:
    """Quantize every point; a clamp before it is subsumed by the limits of the integers.

    Inputs of the names in `arriving` are i8 already.
    """

    def rounded(g: Builder, value: Value, chosen: QuantizedRange) -> Value:
        scale = g.scalar(chosen.scale)
        inside = _unclamped(value, chosen)
        q = g.quantize(inside, scale, zero=chosen.zero)
        return g.dequantize(q, scale, zero=chosen.zero)

    def rule(g: Builder, node: Node) -> tuple[Value, ...] | None:
        if not any(result in ranges for result in node.results):
            return None
        g.append(node)
        return tuple(
            rounded(g, result, ranges[result]) if result in ranges else result
            for result in node.results
        )

    rewrite(graph, rule)
    first: list[Node] = []
    g = Builder(graph)
    with g.into(first):
        replacements = {}
        for place, value in enumerate(graph.inputs):
            if value.name in arriving:
                chosen = ranges[value]
                graph.inputs[place] = Value(value.name, TensorType(DType.I8, value.shape))
                scale = g.scalar(chosen.scale)
                replacements[value] = g.dequantize(graph.inputs[place], scale, zero=chosen.zero)
            elif value in ranges:
                replacements[value] = rounded(g, value, ranges[value])
    replace_operands(graph.nodes, replacements)
    graph.nodes[:0] = first


def input_range(graph: Graph, name: str) -> QuantizedRange | None:
    """Return the quantization of an i8 input; None for an input of real numbers."""
    value = graph.input(name)
    for node in graph.nodes:
        if node.op == "dequantize" and node.operands[0] is value:
            return QuantizedRange(float(graph.constants[node.operands[1]]), node.attrs["zero"])
    return None


def _unclamped(value: Value, chosen: QuantizedRange) -> Value:
    """Return the operand of a clamp that the integers' range makes redundant."""
    node = value.node
    clamps = None if node is None else lookup(node.op).clamps
    if node is None or clamps is None:
        return value
    least, most = clamps(node.attrs)
    low, high = ((limit - chosen.zero) * chosen.scale for limit in (LOW, HIGH))
    slack = chosen.scale / 2
    covered = low >= least - slack * 1e-3 and high <= most + slack
    return node.operands[0] if covered else value
