"""Plain steps w - rate g that the product which makes g can take: it adds w, and g is never made.

The rate multiplies an operand of the product, where that is smaller than g.
"""

from dataclasses import dataclass

from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node, Value


@dataclass(frozen=True)
class Step:
    """`result` = `param` - `rate` times a gradient that nothing else reads; `nodes` compute it."""

    param: Value
    rate: Value
    result: Value
    nodes: tuple[Node, Node]


def step_of(w: EntryWriter, gradient: Value) -> Step | None:
    """Return the step that reads a gradient; None where more is done with it."""
    scaled = w.only_reader(gradient, "mul")
    last = None if scaled is None else w.only_reader(scaled.result, "sub")
    if scaled is None or last is None:
        return None
    param, taken = last.operands
    (rate,) = [value for value in scaled.operands if value is not gradient] or [gradient]
    known = rate.shape == () and rate.node is None  # else it may not have been computed yet
    if not known or taken is not scaled.result or w.graph.param_of(param) is None:
        return None
    return Step(param, rate, last.result, (scaled, last)) if param.shape == gradient.shape else None


def stepped(
    w: EntryWriter, step: Step, pair: tuple[str, str], turned: tuple[int, int], content: str
) -> str:
    """Return the content of a param less the rate times the product of a pair of matrices.

    The first of the pair is what the rate multiplies.
    """
    w.done |= {*step.nodes}
    first = w.node("Mul", pair[0], w.read(step.rate))
    names = (first, pair[1], content)
    return w.node("Gemm", *names, transA=turned[0], transB=turned[1], alpha=-1.0)
