"""Rewrite products of dynamically quantized activations to products with a dequantized weight.

onnxruntime's `quantize_dynamic` finds the range of an activation at run time:

    DynamicQuantizeLinear x -> q, s, z;  MatMulInteger q, w, z, zw;  Cast;  Mul by (s times sw)

They are replaced by the equivalent `MatMul x, DequantizeLinear(w, sw, zw)` on real numbers.
Activations are then not rounded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, helper

DYNAMIC = "DynamicQuantizeLinear"
PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}


def with_real_products(model: ModelProto) -> ModelProto:
    """Return the model without integer products whose real product is known."""
    found = list(_products(model.graph))
    if not found:
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    made = {id_of(product.node): list(product.real()) for product in found}
    gone = {id_of(node) for product in found for node in (product.cast, product.scaled)}
    nodes: list[NodeProto] = []
    for node in copy.graph.node:
        nodes += made.get(id_of(node), [] if id_of(node) in gone else [node])
    read = {name for node in nodes for name in node.input} | {o.name for o in copy.graph.output}
    for kind in ("Mul", DYNAMIC):  # nodes that compute scales, then their inputs
        nodes = [n for n in nodes if n.op_type != kind or read.intersection(n.output)]
        read = {name for n in nodes for name in n.input} | {o.name for o in copy.graph.output}
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def id_of(node: NodeProto) -> str:
    """Return a node's unique key: its first result's name."""
    return str(node.output[0])


@dataclass(frozen=True)
class _Product:
    """A product of integers, with the dequantization of its result."""

    node: NodeProto
    quantized: NodeProto
    cast: NodeProto
    scaled: NodeProto
    scale: str

    def real(self) -> Iterator[NodeProto]:
        """Create the product with the weight's real numbers."""
        weight = f"{self.node.input[1]}.real"
        zero = self.node.input[3:4]
        axis = 0 if self.node.op_type == "ConvInteger" else 1
        result = id_of(self.node)
        yield helper.make_node(
            "DequantizeLinear", [self.node.input[1], self.scale, *zero], [f"{result}.weight"],
            name=weight, axis=axis,
        )  # fmt: skip
        product = helper.make_node(
            PRODUCTS[self.node.op_type],
            [self.quantized.input[0], f"{result}.weight"],
            [id_of(self.scaled)],
            name=self.node.name,
        )
        product.attribute.extend(self.node.attribute)
        yield product


def _products(graph: GraphProto) -> Iterator[_Product]:
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    weights = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        quantized = makers.get(node.input[0]) if node.input else None
        if node.op_type in PRODUCTS and quantized is not None and node.input[1] in weights:
            yield from _product(node, quantized, (makers, readers), weights)


def _product(
    node: NodeProto,
    quantized: NodeProto,
    graph: tuple[Mapping[str, NodeProto], Mapping[str, list[NodeProto]]],
    weights: set[str],
) -> Iterator[_Product]:
    """Match the readers of one integer product; None for another form."""
    makers, readers = graph
    casts = readers.get(id_of(node), [])
    if quantized.op_type != DYNAMIC or [c.op_type for c in casts] != ["Cast"]:
        return
    if node.input[2:3] != quantized.output[2:3] or node.input[0] != quantized.output[0]:
        return
    scaled = readers.get(id_of(casts[0]), [])
    if [node.op_type for node in scaled] != ["Mul"]:
        return
    factor = next((name for name in scaled[0].input if name != id_of(casts[0])), "")
    scales = makers.get(factor)
    if scales is None or scales.op_type != "Mul" or quantized.output[1] not in scales.input:
        return
    own = [name for name in scales.input if name != quantized.output[1]]
    if own and own[0] in weights:
        yield _Product(node, quantized, casts[0], scaled=scaled[0], scale=own[0])
