"""Evaluate the last layers of a graph on random inputs.

The outputs of weighted layers, and the graph's inputs, are replaced by random numbers. A property
of the results is then one of the last layers, not of the weights or the data.
"""

from collections.abc import Iterator

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Graph, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops.registry import lookup

SCALES = (1.0, 10.0)
"""Standard deviations of the draws; from the second on, activations saturate."""
MOST_READ = 1 << 16
"""Maximum elements of a weight examined for negative ones."""


def drawn(graph: Graph, value: Value) -> Iterator[np.ndarray]:
    """Yield an array for a value from draws of each scale."""
    end = Graph(graph.name, params=graph.params, constants=graph.constants)
    end.outputs["end"] = value
    _collect(graph, value, end)
    rng = np.random.default_rng(0)
    for scale in SCALES:
        feed = {x.name: _draw(rng, x, scale) for x in end.inputs}
        with np.errstate(all="ignore"):
            yield run(end, feed)["end"]


def _collect(graph: Graph, value: Value, end: Graph) -> None:
    """Collect the nodes that compute a value, in order, and the random values before them."""
    done: set[Value] = set()
    waiting = [(value, False)]
    while waiting:
        x, ready = waiting.pop()
        if x in done or x in graph.constants:
            continue
        param = graph.param_of(x)
        if param is not None and param.contents.known:
            continue
        if x.node is None or param is not None or _is_signed_product(graph, x):
            end.inputs.append(x)
            done.add(x)
        elif ready:
            end.nodes.append(x.node)
            done.update(x.node.results)
        else:
            waiting.append((x, True))
            waiting += [(operand, False) for operand in x.node.operands]


def _is_signed_product(graph: Graph, value: Value) -> bool:
    """Whether a layer makes a value, by weights of any sign, all zero or not known."""
    node = value.node
    layer = None if node is None else lookup(node.op).layer
    if node is None or layer is None:
        return False
    weight = node.operands[layer.weight]
    while weight.node is not None and lookup(weight.node.op).copies:
        weight = weight.node.operands[0]
    if weight in graph.constants:
        return _is_signed(graph.constants[weight])
    param = graph.param_of(weight)
    if param is None:
        return weight.node is not None and lookup(weight.node.op).decodes
    if param.value.dtype is not F32 or not param.contents.known:
        return True
    return _is_signed(param.data.reshape(-1)[:MOST_READ])


def _is_signed(weight: np.ndarray) -> bool:
    return bool((weight < 0).any()) or not weight.any()


def _draw(rng: np.random.Generator, value: Value, scale: float) -> np.ndarray:
    """Draw normal floats, bools and small bytes; others are zero, which is a valid index
    everywhere.
    """
    if value.dtype is F32:
        return (scale * rng.standard_normal(value.shape)).astype(np.float32)
    if value.dtype is BOOL:
        return rng.random(value.shape) < 0.5
    if not value.dtype.computed:
        return rng.integers(2, size=value.shape).astype(value.dtype.numpy)
    return np.zeros(value.shape, value.dtype.numpy)
