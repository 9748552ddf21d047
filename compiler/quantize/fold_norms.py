"""Fold batch norms, with their running statistics, into the layers before them.

An integer layer has no batch statistics: its norm uses the running ones, a factor and a summand per
channel. The factor is folded into the weight and the summand into the norm's `beta`, so the
remaining params keep their roles: a layer's weight and its bias.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import InMemory
from pockengine.compiler.ir.graph import Graph, Node, Param, Value
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.forward.infer import use_running_statistics


@dataclass(frozen=True)
class FoldedNorm:
    """A folded norm: the factor of its layer's weight, and the summand of its `beta`.

    `factor` broadcasts to the weight.
    """

    weight: str
    beta: str
    factor: np.ndarray
    shift: np.ndarray

    def unfold(self, values: dict[str, np.ndarray]) -> None:
        """Undo the folding: return values that are equivalent with the norm's statistics."""
        if self.weight in values:
            weight, still = values[self.weight], np.zeros(())
            real = np.divide(weight, self.factor, where=self.factor != 0, out=weight * still)
            values[self.weight] = real.astype(np.float32)
        if self.beta in values:
            values[self.beta] = (values[self.beta] - self.shift).astype(np.float32)


@dataclass(frozen=True)
class _Affine:
    """A layer whose result is multiplied by `factor` and then gets `summand` added, by channel."""

    layer: Node
    weight: Param
    beta: Param
    factor: np.ndarray
    summand: np.ndarray


def fold_norms(graph: Graph) -> tuple[FoldedNorm, ...]:
    """Make norms use running statistics; fold each one whose layer has a weight of its own.

    Leaves: folded weights and biases; other norms as arithmetic.
    """
    use_running_statistics(graph)
    users, vectors = graph.users(), _vectors(graph)
    norms: list[FoldedNorm] = []

    def fold(g: Builder, node: Node) -> tuple[Value, ...] | None:
        found = _affine(graph, node, vectors, users)
        if found is None:
            return None
        weight, beta, factor = found.weight, found.beta, _along(found.layer, found.factor)
        norms.append(FoldedNorm(weight.name, beta.name, factor, found.summand - beta.data))
        weight.contents = InMemory(np.asarray(factor * weight.data, np.float32))
        beta.contents = InMemory(np.asarray(found.summand, np.float32))
        return (g.add(found.layer.result, beta.value),)

    lower(graph, {"add": fold})
    DeadCode().run(graph)
    return tuple(norms)


def _vectors(graph: Graph) -> dict[Value, np.ndarray]:
    """Evaluate expressions of vector params and constants at compile time."""
    known = {value: data.astype(np.float64) for value, data in graph.constants.items()}
    for param in graph.params.values():
        if len(param.value.shape) == 1 and param.contents.known:
            known[param.value] = param.data.astype(np.float64)
    for node in graph.nodes:
        simple = lookup(node.op).elementwise and len(node.results) == 1
        if simple and node.operands and all(value in known for value in node.operands):
            arrays = tuple(known[value].astype(value.dtype.numpy) for value in node.operands)
            known[node.result] = lookup(node.op).eval(arrays, node.attrs)[0]
    return known


def _affine(
    graph: Graph, node: Node, vectors: Mapping[Value, np.ndarray], users: Mapping[Value, list[Node]]
) -> _Affine | None:
    """Match `layer factor + summand`, with an optional bias of the layer."""
    scaled, added = node.operands
    if scaled.node is None or scaled.node.op != "mul" or added not in vectors:
        return None
    x, factor = scaled.node.operands
    beta = _beta(graph, added)
    chain = [scaled, x]
    bias = np.zeros(())
    if x.node is not None and x.node.op == "add" and x.node.operands[1] in vectors:
        x, own = x.node.operands
        chain.append(x)
        bias = vectors[own]
    layer = x.node
    if factor not in vectors or beta is None or layer is None or lookup(layer.op).layer is None:
        return None
    weight = graph.param_of(layer.operands[1])
    if weight is None or any(len(users[v]) != 1 for v in (*chain, weight.value)):
        return None
    return _Affine(
        layer, weight, beta, factor=vectors[factor], summand=vectors[added] + bias * vectors[factor]
    )


def _beta(graph: Graph, summand: Value) -> Param | None:
    """Return the norm's own summand: the vector itself, or the minuend if a mean is subtracted."""
    if summand.node is not None and summand.node.op == "sub":
        summand = summand.node.operands[0]
    return graph.param_of(summand)


def _along(layer: Node, factor: np.ndarray) -> np.ndarray:
    """Reshape factors of a layer's features to broadcast to its weight."""
    return factor[:, None] if layer.attrs.get("transpose_b") else factor
