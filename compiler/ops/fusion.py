"""A fusion: one node whose body is a graph of at most one anchor and elementwise nodes.

The body's inputs are the node's operands in order, its outputs the node's results in order; its
scalar constants stay inside. A backend emits the whole body as one kernel.

`writes` are positions of operands that are updated in place: the body's last outputs are their new
contents, and not results of the node.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.graph import Graph

Attrs = Mapping[str, Any]


def _infer(types: Types, attrs: Attrs) -> Types:
    body: Graph = attrs["body"]
    if types != tuple(value.type for value in body.inputs):
        raise GraphError(f"fusion body {body.name} takes other operands than {types}")
    types = tuple(value.type for value in body.outputs.values())
    return types[: len(types) - len(attrs["writes"])]


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    from pockengine.compiler.ir.evaluate import run  # the evaluator needs the registry first

    body: Graph = attrs["body"]
    inputs = {value.name: array for value, array in zip(body.inputs, arrays, strict=True)}
    return tuple(run(body, inputs).values())


define(
    "fusion",
    "operands",
    stored=True,
    variadic=True,
    attrs={"body": REQUIRED, "writes": ()},
    infer=_infer,
    eval=_eval,
)
