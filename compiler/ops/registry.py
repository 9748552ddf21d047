"""Registry of ops: each op is defined once, by one call of `define`.

    infer   operand types, attrs -> result types (GraphError when they do not fit)
    eval    operand arrays, attrs -> result arrays; the NumPy meaning, the oracle of every test
    formula node -> its first result by other ops, for higher derivatives
    vjp     operand name -> rule that builds the operand's cotangent from that of the first result
    cost    node -> multiply-adds

With one gradient rule per operand, sparse training needs no special cases: the rule of a frozen
operand is never called. An operand without a rule is not differentiable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import DType, TensorType
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
"""Selected channels of a tensor: a range, or sorted indices."""
ChannelVjp = Callable[["Builder", Node, Value, ChannelSet], Value]
LowRank = Callable[["Builder", Node, tuple[Value, Value], bool, float], Value]

Formula = Callable[["Builder", Node], Value]
"""Builds the first result of a node from other ops."""

REQUIRED = object()
"""Marks an attr without a default."""


def _no_cost(_: Node) -> int:
    return 0


@dataclass(frozen=True)
class Layer:
    """A layer: an op with an operand `weight`, whose last axis is the result's channels.

    The op is linear in it. `transposed(node)`: the node reads it as [out, in] instead. `low_rank(g,
    node, (a, b), transposed, scale)` builds (scale x A) B, for a transposed weight or not;
    `refusal(node)` returns why a node cannot have that, or None.
    """

    weight: int
    rank: int
    low_rank: LowRank
    transposed: Callable[[Node], bool] = lambda node: False
    refusal: Callable[[Node], str | None] = lambda node: None


@dataclass(frozen=True)
class Indices:
    """An operand of indices: 0 to `size(node)` - 1 are valid.

    `ignored` names an attr with one more valid number. Operands with such an attr are labels: an
    invalid one makes the result NaN; other indices are clamped.
    """

    operand: int
    size: Callable[[Node], int]
    ignored: str | None = None


@dataclass(frozen=True)
class OpDef:
    """The complete definition of one op, with the traits that passes use.

    `writes` are the operands that an update op writes in place; a `pointwise` op reads, of every
    tensor, only the element that it writes. `variadic` ops repeat their last operand; `optional`
    counts trailing operands that may be absent. `channel_axis` and `channel_vjp` serve
    channel-sparse training of a weight operand: the axis along which some of its channels can
    train, and the gradient of just those.

        elementwise  an element of the result depends on the operands' elements at its place alone
        rows         a row (the last axis) depends on the operands' rows at its place alone
        copies       an element of the result is one of an operand's, whatever they hold, or an attr
        view         a copy whose result is its operand's storage under another shape
        slices       a copy of some of its operand's elements
        linear       operands in each of which the result is linear, or affine
        shifts       operands that are added: one more there is one more in the result
        product      a sum of products of two operands of f32 or i8, as in ops/product.py
        means        an element of the result is the mean of some of its operand's, or of padding
        rearranges   a copy of a whole operand, its axes permuted, split, joined or repeated
        clamps       least and most of the result, by the attrs; the operand itself between them
        converts     between real numbers and the integers that stand for them
        follows      an update that leaves a state alone that equals the other operand
        small        operands of i32 whose numbers fit into a byte
        window       the result is summed from windows, which `eval` copies
        layer        what makes it a layer with a weight
        indices      its operand of indices
        stored       it moves or casts elements of any dtype without calculating
        storage      dtypes of storage that it calculates with
        decodes      its result is what stored elements stand for: cheap to recompute
    """

    name: str
    operands: tuple[str, ...]
    infer: Infer
    eval: Eval
    attrs: Mapping[str, Any] = field(default_factory=dict)
    vjp: Mapping[str, Vjp] = field(default_factory=dict)
    formula: Formula | None = None
    cost: Cost = _no_cost
    writes: tuple[int, ...] = ()
    pointwise: bool = False
    elementwise: bool = False
    rows: bool = False
    copies: bool = False
    view: bool = False
    slices: bool = False
    linear: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()
    product: bool = False
    means: bool = False
    rearranges: bool = False
    clamps: Callable[[Mapping[str, Any]], tuple[float, float]] | None = None
    converts: bool = False
    follows: bool = False
    small: tuple[int, ...] = ()
    window: bool = False
    layer: Layer | None = None
    indices: Indices | None = None
    stored: bool = False
    storage: frozenset[DType] = frozenset()
    decodes: bool = False
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

    def result_types(self, types: Types, attrs: Mapping[str, Any]) -> Types:
        """Infer the results' types; GraphError if the operands' types do not fit the op."""
        if not self.stored:
            for type_ in types:
                if not (type_.dtype.computed or type_.dtype in self.storage):
                    raise GraphError(
                        f"{self.name} does not calculate with {type_}: {type_.dtype.value} is "
                        f"a type of storage; cast it first"
                    )
        return self.infer(types, attrs)

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
    """The definition of an op; GraphError if there is none."""
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
    """Multiply-adds of a node, including those in a fusion's body."""
    body = node.attrs.get("body")
    if body is not None:
        return sum(node_cost(inner) for inner in body.nodes)
    return lookup(node.op).cost(node)
