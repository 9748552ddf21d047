"""Which output a loss is taken of, and whether it holds probabilities instead of logits."""

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, helper

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.ops.registry import ML_DOMAIN

LEAST = 1e-7
"""A probability is taken to be no less, as Keras has it."""


def scores_of(g: Builder, graph: GraphProto, outputs: Mapping[str, Tensor], loss: str) -> Tensor:
    """Return what a loss is taken of: the first output of floats, for cross entropy as logits.

    Classifiers of scikit-learn give labels before it.
    """
    floats = [item for item in outputs.items() if item[1].dtype is F32]
    name, scores = (floats or list(outputs.items()))[0]
    if loss == "cross_entropy" and makes_probabilities(graph, name):
        return _logits(g, scores)
    return scores


def makes_probabilities(graph: GraphProto, output: str) -> bool:
    """Return whether an operator that gives probabilities makes this output."""
    makers = {name: node for node in graph.node for name in node.output}
    node = makers.get(output)
    while node is not None and node.op_type in ("Cast", "Identity"):
        node = makers.get(node.input[0])
    if node is None:
        return False
    if node.domain == ML_DOMAIN and _text(node, "norm") == "L1":
        node = makers.get(node.input[0], node)
    if node.domain == ML_DOMAIN:
        return _text(node, "post_transform") in ("LOGISTIC", "SOFTMAX")
    return node.op_type == "Softmax"


def _text(node: NodeProto, name: str) -> str:
    """Return an attribute that is text, or nothing."""
    found = [helper.get_attribute_value(a) for a in node.attribute if a.name == name]
    return found[0].decode() if found and isinstance(found[0], bytes) else ""


def _logits(g: Builder, probabilities: Tensor) -> Tensor:
    """Return what a softmax was taken of, else the probabilities' logarithms."""
    node = probabilities.value.node
    if node is not None and node.op == "softmax":
        return Tensor(node.operands[0], probabilities.layout)
    held = emit.arithmetic(g, "maximum", probabilities, LEAST)
    return emit.unary("log")(g, held)
