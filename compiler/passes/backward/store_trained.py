"""Store trained weights as bf16: half the memory, without f32 master weights.

Each reader decodes them; updates compute in f32 and round stochastically (`small_updates.py`).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Converted
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import F32, DType, TensorType
from pockengine.compiler.ir.writes import written_values
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.passes.backward.small_updates import replaced, rounded_update
from pockengine.compiler.passes.base import Pass
from pockengine.errors import CompileError


@dataclass(frozen=True)
class StoreTrained(Pass):
    """Store the f32 params of these names as bf16.

    Requires: updates appended, none fused. CompileError for an update that is not an elementwise
    formula.
    """

    names: Set[str]

    def run(self, graph: Graph) -> None:
        small = {
            value: _stored(graph, value)
            for name, value in _params(graph).items()
            if name in self.names
        }

        def rule(g: Builder, node: Node) -> Sequence[Value] | None:
            written = [value for value in written_values(node) if value in small]
            if written:
                _check(node, written[0])
                rounded_update(g, node, {0: small[written[0]]})
                return ()
            if node.op == "take" and node.operands[0] in small:  # before rows are decoded
                rows = g.take(small[node.operands[0]], node.operands[1], axis=node.attrs["axis"])
                return (g.cast(rows, dtype=F32.value),)
            read = [value for value in dict.fromkeys(node.operands) if value in small]
            wide = {value: g.cast(small[value], dtype=F32.value) for value in read}
            node.operands = tuple(wide.get(value, value) for value in node.operands)
            return None

        rewrite(graph, rule)


def _params(graph: Graph) -> Mapping[str, Value]:
    return {name: param.value for name, param in graph.params.items()}


def _stored(graph: Graph, value: Value) -> Value:
    contents = graph.params[value.name].contents
    return replaced(graph, value, Converted(contents, TensorType(DType.BF16, value.shape)))


def _check(node: Node, param: Value) -> None:
    if node.op not in FORMULAS or "axis" not in node.attrs or node.operands[0] is not param:
        raise CompileError(
            f"{param.name} is updated by {node.op}, which is no formula of its elements and cannot "
            "round them by chance; leave trained weights in f32, or use another optimizer"
        )
