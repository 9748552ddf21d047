"""An update defined by a body graph of elementwise nodes.

The body's inputs are the trained part of the param, its gradient and the other operands in order;
its outputs are the new contents of the operands at `writes`, the param's first. Operands broadcast
as in elementwise ops. So an optimizer is a formula and needs no kernel of its own.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pockengine.compiler.ir.scalars import COMPUTED, DType
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define, lookup
from pockengine.compiler.ops.update import PART, updated_part, updated_type
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.graph import Graph

Attrs = Mapping[str, Any]


def _infer(types: Types, attrs: Attrs) -> Types:
    part = updated_type(types[0], attrs)
    check_body("elementwise_update", attrs["body"], (part, *types[1:]), attrs["writes"])
    return ()


def check_body(op: str, body: "Graph", taken: Sequence[TensorType], writes: Sequence[int]) -> None:
    """Raise GraphError unless an update's body computes the operands at `writes` from `taken`."""
    if list(taken) != [value.type for value in body.inputs]:
        raise GraphError(f"the body of {op} takes other operands than {tuple(taken)}")
    results = [value.type for value in body.outputs.values()]
    if results != [taken[place] for place in writes]:
        raise GraphError(f"{op} of {taken[0]} writes other types than it reads")
    other = [node.op for node in body.nodes if not lookup(node.op).elementwise]
    if other:
        raise GraphError(f"the body of {op} has {other[0]}, not elementwise")


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    from pockengine.compiler.ir.evaluate import run  # the evaluator needs the registry first

    body: Graph = attrs["body"]
    param, part = arrays[0].copy(), updated_part(attrs)
    operands = (param[part], *arrays[1:])
    inputs = {value.name: array for value, array in zip(body.inputs, operands, strict=True)}
    param[part], *states = run(body, inputs).values()
    return (param, *states)


define(
    "elementwise_update",
    "param grad operands",
    variadic=True,
    optional=1,
    attrs={"body": REQUIRED, "writes": REQUIRED, **PART},
    infer=_infer,
    eval=_eval,
    storage=frozenset(DType) - set(COMPUTED),  # its body defines the computation
    writes=(0,),
    pointwise=True,
)
