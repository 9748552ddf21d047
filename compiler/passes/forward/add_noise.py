"""NEFTune: add noise to the embeddings of a training's forward pass (arXiv:2310.05914)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.controls import SEED
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import F32
from pockengine.compiler.ops.random import NOISE_STREAM
from pockengine.compiler.optim.base import control
from pockengine.compiler.passes.base import Pass
from pockengine.errors import CompileError

STREAM = NOISE_STREAM - 1


@dataclass(frozen=True)
class EmbeddingNoise:
    """Uniform noise of at most alpha / sqrt(L D) on rows (..., L, D) of an embedding table.

    L counts all tokens of a row, with padding, as in transformers' `neftune_noise_alpha`.
    """

    table: str
    alpha: float

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise CompileError(f"noise of embeddings has alpha {self.alpha}; give a number above 0")


@dataclass(frozen=True)
class AddNoise(Pass):
    """Add noise to the output of the layer that takes rows from a table.

    The noise depends on the seed and the step only. CompileError if no rows are taken from it.
    """

    noise: EmbeddingNoise

    def run(self, graph: Graph) -> None:
        param = graph.params.get(self.noise.table)
        users = graph.users()
        readers = [] if param is None else users.get(param.value, [])
        rows = {
            _embedded(node, users): None
            for node in readers
            if node.op == "take" and len(node.operands[1].shape) > 0
        }
        if not rows:
            raise CompileError(
                f"{graph.name} takes no rows from {self.noise.table}; name its embedding table"
            )

        def noisy(g: Builder, node: Node) -> list[Value] | None:
            if len(node.results) != 1 or node.result not in rows:
                return None
            g.append(node)
            x = node.result
            most = self.noise.alpha / math.sqrt(math.prod(x.shape[-2:]))
            drawn = g.random_uniform(control(g, SEED), shape=x.shape, stream=STREAM)
            return [g.add(x, g.mul(g.sub(drawn, g.scalar(0.5)), g.scalar(2 * most)))]

        rewrite(graph, noisy)


def _embedded(node: Node, users: Mapping[Value, Sequence[Node]]) -> Value:
    """Return the output of the layer that takes rows: decoded, and scaled as in Gemma."""
    value = node.result
    while True:
        readers = users.get(value, ())
        within = node.scope and readers and all(each.scope == node.scope for each in readers)
        if value.dtype is F32 and not within:
            return value
        value = readers[-1].result
