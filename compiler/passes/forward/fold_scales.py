"""Fold batch norm with frozen statistics into the frozen convolution before it.

Frozen batch norm is `conv(x, w) * scale + shift` with constant vectors. The scale moves into w; the
shift remains as the bias. The gradient to x is unchanged, since the function is.
"""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.fold_constants import fixed_values


@dataclass(frozen=True)
class FoldScales(Pass):
    """Move constant per-channel factors into the fixed weight they multiply.

    Requires: constants folded. Leaves: no `mul` of a convolution or product with fixed weight, used
    only there, by a fixed vector over its channels.
    """

    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        folder = _Folder(graph, fixed_values(graph, self.written))
        rewrite(graph, folder.fold)


class _Folder:
    """State of one run: fixed values, users of each value, and new weights."""

    def __init__(self, graph: Graph, fixed: dict[Value, Contents]) -> None:
        self.graph, self.fixed = graph, fixed
        self.users = graph.users()
        self.outputs = set(graph.outputs.values())
        self.names = {value.name for value in graph.values()}
        self.folded: set[Node] = set()

    def fold(self, g: Builder, node: Node) -> tuple[Value] | None:
        """Return the layer's result for a layer multiplied by a scale, if it can be folded."""
        if node.op != "mul":
            return None
        for result, scale in (node.operands, node.operands[::-1]):
            if result.node is not None and self._folds(result.node, scale):
                self._scale(result.node, self.fixed[scale].read())
                return (result,)
        return None

    def _folds(self, linear: Node, scale: Value) -> bool:
        layer = lookup(linear.op).layer
        if layer is None or layer.transposed(linear) or linear in self.folded:
            return False
        if scale not in self.fixed or linear.operands[layer.weight] not in self.fixed:
            return False
        channels = linear.result.shape[-1]
        alone = len(self.users[linear.result]) == 1 and linear.result not in self.outputs
        return scale.shape in ((channels,), ()) and alone

    def _scale(self, linear: Node, scale: np.ndarray) -> None:
        """Make a layer read its weight times a scale."""
        layer = lookup(linear.op).layer
        assert layer is not None
        weight = linear.operands[layer.weight]
        with np.errstate(all="ignore"):  # overflow happens in the program as well
            data = (self.fixed[weight].read().astype(np.float64) * scale).astype(np.float32)
        name = f"{weight.name}.scaled"
        while name in self.names:
            name += "_"
        self.names.add(name)
        scaled = Value(name, weight.type)
        self.graph.constants[scaled], self.fixed[scaled] = data, InMemory(data)
        operands = list(linear.operands)
        operands[layer.weight] = scaled
        linear.operands = tuple(operands)
        self.folded.add(linear)
