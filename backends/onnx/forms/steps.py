"""Plain steps w - g that the product which makes g can take: it adds w, and g is never made."""

from dataclasses import dataclass

from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node, Value


@dataclass(frozen=True)
class UpdateStep:
    """`result`, made by `node`, is `param` less a gradient, times the rate, that only it reads."""

    param: Value
    result: Value
    node: Node


def step_of(w: EntryWriter, gradient: Value) -> UpdateStep | None:
    """Return the step that reads a gradient; None where more is done with it."""
    node = w.only_reader(gradient, "sub")
    if node is None:
        return None
    param, taken = node.operands
    fits = taken is gradient and param.shape == gradient.shape
    return UpdateStep(param, node.result, node) if fits and w.graph.param_of(param) else None


def stepped(
    w: EntryWriter, step: UpdateStep, pair: tuple[str, str], turned: tuple[int, int], content: str
) -> str:
    """Return the content of a param less the product of a pair of matrices."""
    w.done.add(step.node)
    return w.node("Gemm", *pair, content, transA=turned[0], transB=turned[1], alpha=-1.0)
