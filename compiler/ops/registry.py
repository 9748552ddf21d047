"""Ops: each is defined once, by one call of `define`, and everything about it hangs off the result.

    infer   operand types, attrs -> result types (GraphError when they do not fit)
    eval    operand arrays, attrs -> result arrays; the NumPy meaning, the oracle of every test
    vjp     operand name -> rule that builds the operand's cotangent from that of the first result
    cost    node -> multiply-adds

A gradient rule per operand makes sparse training structural: the rule of a frozen operand is never
called. An operand without a rule is not differentiable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import TensorType
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Types = tuple[TensorType, ...]
Arrays = tuple[np.ndarray, ...]
Infer = Callable[[Types, Mapping[str, Any]], Types]
Eval = Callable[[Arrays, Mapping[str, Any]], Arrays]
Vjp = Callable[["Builder", Node, Value], Value]
Cost = Callable[[Node], int]
ChannelSet = range | tuple[int, ...]
"""Some channels of a tensor: neighbours, or sorted indices."""
ChannelVjp = Callable[["Builder", Node, Value, ChannelSet], Value]

REQUIRED = object()
"""Marks an attr that has no default."""


def _no_cost(_: Node) -> int:
    return 0


@dataclass(frozen=True)
class OpDef:
    """The whole definition of one op. `writes` are the operands that an update op writes in place.

    An update that is `pointwise` reads of every tensor only the element that it writes. The result
    of a `view` is its operand's storage under another shape.
    `variadic` ops repeat their last operand; `optional` counts trailing operands that may be
    absent. `channel_axis` and `channel_vjp` serve channel-sparse training of a weight operand: the
    axis along which some of its channels can train, and the gradient of just those.
    """

    name: str
    operands: tuple[str, ...]
    infer: Infer
    eval: Eval
    attrs: Mapping[str, Any] = field(default_factory=dict)
    vjp: Mapping[str, Vjp] = field(default_factory=dict)
    cost: Cost = _no_cost
    elementwise: bool = False
    writes: tuple[int, ...] = ()
    pointwise: bool = False
    view: bool = False
    variadic: bool = False
    optional: int = 0
    variadic_vjp: Callable[[int], Vjp] | None = None
    channel_axis: Mapping[str, Callable[[Node], int | None]] = field(default_factory=dict)
    channel_vjp: Mapping[str, ChannelVjp] = field(default_factory=dict)

    def vjp_rule(self, index: int) -> Vjp | None:
        """Gradient rule of the operand at this position, if it is differentiable."""
        if self.variadic_vjp is not None:
            return self.variadic_vjp(index)
        return self.vjp.get(self.operand_name(index))

    def operand_name(self, index: int) -> str:
        """Name of the operand at this position."""
        return self.operands[min(index, len(self.operands) - 1)]

    def check_arity(self, count: int) -> None:
        """Raise GraphError unless the op takes this many operands."""
        most = len(self.operands)
        least = most - self.optional
        if count < least or (count > most and not self.variadic):
            raise GraphError(
                f"{self.name} takes ({', '.join(self.operands)}), not {count} operands"
            )

    def complete_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; GraphError names an unknown or a missing attr."""
        unknown = sorted(set(attrs) - set(self.attrs))
        full = {**self.attrs, **attrs}
        missing = sorted(name for name, value in full.items() if value is REQUIRED)
        if unknown or missing:
            wrong = f"has no attr {unknown}" if unknown else f"needs attr {missing}"
            raise GraphError(f"{self.name} {wrong}; its attrs are {sorted(self.attrs)}")
        return full


_OPS: dict[str, OpDef] = {}


def define(name: str, operands: str, **fields: Any) -> OpDef:
    """Register an op; `operands` are its operand names, separated by spaces."""
    if name in _OPS:
        raise GraphError(f"op {name} is defined twice")
    _OPS[name] = OpDef(name, tuple(operands.split()), **fields)
    return _OPS[name]


def lookup(name: str) -> OpDef:
    """The definition of an op; GraphError when there is none."""
    try:
        return _OPS[name]
    except KeyError:
        raise GraphError(f"there is no op {name!r}; compiler/ops defines them") from None


def all_ops() -> tuple[OpDef, ...]:
    """Every op, sorted by name."""
    return tuple(_OPS[name] for name in sorted(_OPS))


def written_operands(node: Node) -> tuple[int, ...]:
    """Positions of the operands that a node writes in place."""
    writes: tuple[int, ...] = node.attrs.get("writes", lookup(node.op).writes)
    return tuple(index for index in writes if index < len(node.operands))


def node_cost(node: Node) -> int:
    """Multiply-adds of a node, those in a fusion's body included."""
    body = node.attrs.get("body")
    if body is not None:
        return sum(node_cost(inner) for inner in body.nodes)
    return lookup(node.op).cost(node)
