"""Detect whether the operand of cross entropy is probabilities instead of logits.

A softmax before reshapes is recognized by its node, which also yields the logits. Everything else
is recognized by value: outputs that sum to one over the classes for random inputs of the last
layers are probabilities. Numbers between 0 and 1 that do not sum to one are ambiguous, which is an
error.
"""

import numpy as np

from pockengine.compiler.ir import Builder, Graph, Value
from pockengine.compiler.ir.graph import Node
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.drawn_end import drawn
from pockengine.frontends.idioms.finder import Finder
from pockengine.frontends.idioms.rows import log_softmax, softmax
from pockengine.frontends.layout import Tensor

CLASSES = 1
"""The dimension of the classes."""
OPEN, LOGITS, PROBABILITIES = "cross_entropy", "cross_entropy_logits", "cross_entropy_probabilities"
CROSS_ENTROPIES = (OPEN, LOGITS, PROBABILITIES)
LEAST = 1e-37
"""Lower limit of probabilities, the least with full precision in f32."""
SLACK = 0.05
"""How far a sum of probabilities may be from one: they may be clipped, smoothed or rounded."""
ROUNDING = 1e-6
"""How far below zero, of the largest number, a probability may be."""
MOVES = ("reshape", "transpose")
SAME = ("quantize", "dequantize", "stop_gradient")
"""Ops that keep every number, except for rounding."""


def as_logits(g: Builder, output: Tensor, loss: str) -> Tensor:
    """Return the logits of (N, C, ...) outputs: the outputs, or the logarithms of probabilities.

    `loss` is one of CROSS_ENTROPIES. Raises ImportModelError if they cannot be determined.
    """
    if loss == LOGITS or output.shape[CLASSES] == 1:
        return output
    found = _softmax_behind(g.graph, output.value)
    if found is not None:
        return _logits_behind(g, output, loss, *found)
    if loss == OPEN and not _are_probabilities(g.graph, output, output.value):
        return output
    return emit.unary("log")(g, emit.arithmetic(g, "maximum", output, LEAST))


def takes_logarithm(loss: str, scores: np.ndarray, axis: int = CLASSES) -> bool:
    """Whether a framework's own outputs are probabilities for this loss, by value."""
    return loss == PROBABILITIES or (
        loss == OPEN and scores.shape[axis] > 1 and sum_to_one(scores, axis)
    )


def sum_to_one(array: np.ndarray, axis: int) -> bool:
    """Whether rows along an axis are probabilities, by value."""
    sums = array.sum(axis, dtype=np.float64)
    return bool((array >= -ROUNDING).all() and (np.abs(sums - 1) < SLACK).all())


def _softmax_behind(graph: Graph, value: Value) -> tuple[Value, list[Node]] | None:
    """Return a softmax's input, and the nodes that move its result."""
    moves: list[Node] = []
    while value.node is not None and value.node.op in (*MOVES, *SAME):
        moves.insert(0, value.node)
        value = value.node.operands[0]
    logits = None if value.node is None else _operand(graph, value.node)
    moves = [node for node in moves if node.op in MOVES]
    return None if logits is None else (logits, moves)


def _operand(graph: Graph, node: Node) -> Value | None:
    """Return the input of which a node is the softmax, also of one made of separate ops."""
    inner: Node | None = node
    finder = Finder(graph)
    with finder.g.into([]):
        if node.op == "div":
            spelled = softmax(finder, node)
            inner = None if spelled is None else spelled.node
        elif node.op == "exp":
            inner = node.operands[0].node
            if inner is not None and inner.op == "sub":
                spelled = log_softmax(finder, inner)
                inner = None if spelled is None else spelled.node
            return inner.operands[0] if inner and inner.op == "log_softmax" else None
    return inner.operands[0] if inner and inner.op == "softmax" else None


def _logits_behind(
    g: Builder, output: Tensor, loss: str, logits: Value, moves: list[Node]
) -> Tensor:
    """Return logits moved as their softmax is, once that is found to be over the classes."""
    end = Builder(Graph(g.graph.name))
    rows = end.softmax(end.input("logits", logits.type))
    if loss == OPEN:
        _are_probabilities(end.graph, output, _moved(end, rows, moves))
    return Tensor(_moved(g, logits, moves), output.layout)


def _moved(g: Builder, value: Value, moves: list[Node]) -> Value:
    for node in moves:
        value = g.emit(node.op, value, **node.attrs).result
    return value


def _are_probabilities(graph: Graph, output: Tensor, value: Value) -> bool:
    """Judge the value of an output by draws; ImportModelError in doubt."""
    arrays = [array for array in drawn(graph, value) if not np.isnan(array).all()]
    signed = any(np.nanmin(array) < -ROUNDING * np.nanmax(np.abs(array)) for array in arrays)
    if signed or (arrays and not any(np.nanmax(array) for array in arrays)):  # or all zero
        return False
    fitting = [
        dim
        for dim in range(output.rank)
        if output.shape[dim] > 1
        and arrays
        and all(sum_to_one(array, output.axis(dim)) for array in arrays)
    ]
    if CLASSES in fitting:
        return True
    if not fitting and any(np.nanmax(array) > 1 + SLACK for array in arrays):
        return False
    fact = "its output lies between 0 and 1, but its rows do not sum to one over the classes"
    if fitting:
        fact = f"its output holds probabilities along dimension {fitting[0]}"
    raise ImportModelError(
        f"{graph.name}: loss={OPEN!r} takes logits, or probabilities, of classes in dimension "
        f"{CLASSES}; {fact}. Say loss={LOGITS!r} or loss={PROBABILITIES!r} for what it is, or "
        "export the model without its last activation"
    )
