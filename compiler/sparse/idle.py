"""Parameters that should train although the loss does not depend on them."""

import warnings
from collections.abc import Mapping

from pockengine.compiler.autodiff import Channels, influences
from pockengine.compiler.ir.graph import LOSS, Graph
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import CompileError

FACTORS = (".lora_A", ".lora_B")
"""Name suffixes of an adapter's params, which a scheme selects by their weight."""


def influential(graph: Graph) -> frozenset[str]:
    """Return the names of the params that the loss depends on; all if there is no loss."""
    if LOSS not in graph.outputs:
        return frozenset(graph.params)
    values = influences(graph, graph.outputs[LOSS])
    return frozenset(name for name, param in graph.params.items() if param.value in values)


def without_idle(
    graph: Graph, scheme: Scheme, trained: Mapping[str, Channels]
) -> dict[str, Channels]:
    """Return the trained params that have a gradient; warn about the others, which stay unchanged.

    CompileError for a param that the scheme names in full, or when nothing is left.
    """
    known = influential(graph)
    idle = [name for name in trained if name not in known]
    named = {pattern for pattern, _ in scheme.rules}
    for name in idle:
        if name in named or name.endswith(FACTORS):
            raise CompileError(
                f"parameter {name} does not influence the loss, so it cannot train; freeze it"
            )
    if len(idle) == len(trained):
        raise CompileError(
            f"graph {graph.name}: no parameter that should train influences the loss "
            f"({', '.join(idle[:5])}{', ...' if idle[5:] else ''}); check how the loss is computed"
        )
    if idle:
        warnings.warn(
            f"{', '.join(idle)}: the loss does not depend on {'them' if idle[1:] else 'it'}; "
            f"{'they stay as they are' if idle[1:] else 'it stays as it is'}",
            stacklevel=2,
        )
    return {name: channels for name, channels in trained.items() if name in known}
