"""Legalization: rewrite ops that a target lacks to ops that it has.

A table has, for each op, a rule that builds it from simpler ops; rules apply until no unsupported
op has one. The target must support the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.rewrite import Rule, lower
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.common_subexpressions import CommonSubexpressions
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.cleanup.simplify import Simplify
from pockengine.compiler.passes.legal import (
    arithmetic,
    attention,
    mathematics,
    rows,
    updates,
    windows,
)
from pockengine.compiler.target import Target

RULES: Mapping[str, Rule] = {
    **arithmetic.RULES,
    **attention.RULES,
    **mathematics.RULES,
    **rows.RULES,
    **updates.RULES,
    **windows.RULES,
}


@dataclass(frozen=True)
class Legalize(Pass):
    """Rewrite the ops that the target lacks; CompileError names an op that remains unsupported.

    Requires: gradients appended, norms decomposed, no fusions. Leaves: every op and dtype is the
    target's.
    """

    target: Target

    def run(self, graph: Graph) -> None:
        rules = {op: rule for op, rule in RULES.items() if not self.target.takes(op)}
        lowered = False
        while any(node.op in rules for node in graph.nodes):  # no rule produces its own op again
            lower(graph, rules)
            lowered = True
        if lowered:
            Simplify().run(graph)
            CommonSubexpressions().run(graph)
            DeadCode().run(graph)
            delay_writes(graph)
        self.target.check(graph)
