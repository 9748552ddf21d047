"""Plain steps w - g merged into the product that makes g, which adds w; g is never materialized."""

from dataclasses import dataclass

from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node, Value


@dataclass(frozen=True)
class UpdateStep:
    """`result`, made by `node`, is `param` minus a gradient times the rate, of which it is the
    only reader.
    """

    param: Value
    result: Value
    node: Node


def step_of(w: EntryWriter, gradient: Value) -> UpdateStep | None:
    """Return the step that reads a gradient; None if the gradient has other uses."""
    node = w.only_reader(gradient, "sub")
    if node is None:
        return None
    param, taken = node.operands
    fits = taken is gradient and param.shape == gradient.shape
    return UpdateStep(param, node.result, node) if fits and w.graph.param_of(param) else None


def stepped(
    w: EntryWriter, step: UpdateStep, pair: tuple[str, str], turned: tuple[int, int], content: str
) -> str:
    """Return the content of a param minus the product of a pair of matrices."""
    w.done.add(step.node)
    return w.node("Gemm", *pair, content, transA=turned[0], transB=turned[1], alpha=-1.0)
