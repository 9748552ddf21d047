"""Elementwise ops with NumPy broadcasting, one table row each.

Operands share a dtype unless a row says otherwise; comparisons give bool. Gradient rules are
written on the broadcast shape and then summed down to the operand's own shape.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.ir.types import BOOL, F32, DType, Shape, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, Vjp, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def broadcast_shape(*shapes: Shape) -> Shape:
    """NumPy's broadcast of these shapes; GraphError when there is none."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return tuple(int(size) for size in np.broadcast_shapes(*shapes))
    except ValueError:
        raise GraphError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def scaled(g: "Builder", x: Value, factor: float) -> Value:
    """`x` times a number; `x` itself if the number is 1."""
    return x if factor == 1 else g.mul(x, g.scalar(factor))


def reduce_to(g: "Builder", dy: Value, shape: Shape) -> Value:
    """Sum `dy` over the dimensions that were broadcast from `shape`."""
    if dy.shape == shape:
        return dy
    lead = len(dy.shape) - len(shape)
    repeated = [lead + i for i, size in enumerate(shape) if size == 1 and dy.shape[lead + i] != 1]
    axes = (*range(lead), *repeated)
    summed = g.reduce_sum(dy, axes=axes, keepdims=False) if axes else dy
    return summed if summed.shape == shape else g.reshape(summed, shape=shape)


def same_dtype(types: Types, _: Attrs) -> Types:
    """Return the broadcast type of operands that share a dtype, or GraphError."""
    dtypes = {type_.dtype for type_ in types}
    if len(dtypes) != 1:
        raise GraphError(f"operands {', '.join(map(str, types))} must share a dtype; cast them")
    return (TensorType(types[0].dtype, broadcast_shape(*(type_.shape for type_ in types))),)


def _as_it_is(types: Types, _: Attrs) -> Types:
    return types


def _floats(types: Types, attrs: Attrs) -> Types:
    if types[0].dtype is not F32:
        raise GraphError(f"operand {types[0]} must be f32; cast it")
    return same_dtype(types, attrs)


def numbers(types: Types, attrs: Attrs) -> Types:
    """Like `same_dtype`, but GraphError for bool."""
    if any(type_.dtype is BOOL for type_ in types):
        raise GraphError(f"operands {', '.join(map(str, types))} must be numbers; cast them")
    return same_dtype(types, attrs)


def integers(types: Types, attrs: Attrs) -> Types:
    """Like `same_dtype`, but GraphError for anything except integers."""
    if not all(type_.dtype.is_integer for type_ in types):
        raise GraphError(f"operands {', '.join(map(str, types))} must be integers; cast them")
    return same_dtype(types, attrs)


def _comparison(types: Types, attrs: Attrs) -> Types:
    return (TensorType(BOOL, same_dtype(types, attrs)[0].shape),)


def _logical(types: Types, attrs: Attrs) -> Types:
    if any(type_.dtype is not BOOL for type_ in types):
        raise GraphError(
            f"operands {', '.join(map(str, types))} must be bool; compare or cast them"
        )
    return same_dtype(types, attrs)


def _where_type(types: Types, attrs: Attrs) -> Types:
    if types[0].dtype is not BOOL:
        raise GraphError(f"the condition of where must be bool, not {types[0]}")
    chosen = same_dtype(types[1:], attrs)[0]
    return (chosen.with_shape(broadcast_shape(types[0].shape, chosen.shape)),)


def _cast_type(types: Types, attrs: Attrs) -> Types:
    return (TensorType(DType(attrs["dtype"]), types[0].shape),)


def _broadcasting(rule: Vjp, index: int) -> Vjp:
    def reduced(g: "Builder", node: Node, dy: Value) -> Value:
        return reduce_to(g, rule(g, node, dy), node.operands[index].shape)

    return reduced


def elementwise(
    name: str,
    operands: str,
    meaning: Callable[..., Any],
    *,
    infer: Callable[[Types, Attrs], Types] = _floats,
    attrs: Attrs | None = None,
    vjp: Mapping[str, Vjp] | None = None,
    **traits: Any,
) -> None:
    """Define one elementwise op; `meaning` takes the operand arrays, then the attrs by name."""
    names = operands.split()

    def evaluate(arrays: Arrays, node_attrs: Attrs) -> Arrays:
        with np.errstate(all="ignore"):
            result = np.asarray(meaning(*arrays, **node_attrs))
        types = tuple(TensorType(DType.of(array), array.shape) for array in arrays)
        return (result.astype(infer(types, node_attrs)[0].dtype.numpy, copy=False),)

    define(
        name,
        operands,
        attrs=attrs or {},
        infer=infer,
        eval=evaluate,
        vjp={key: _broadcasting(rule, names.index(key)) for key, rule in (vjp or {}).items()},
        elementwise=True,
        **traits,
    )


def zero_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Step functions are flat almost everywhere: dx = 0, as in PyTorch."""
    return g.broadcast_to(g.scalar(0.0), shape=dy.shape)


def _keep_where(g: "Builder", condition: Value, dy: Value) -> Value:
    return g.where(condition, dy, g.scalar(0.0))


def _between(g: "Builder", x: Value, low: float, high: float) -> Value:
    return g.logical_and(g.gt(x, g.scalar(low)), g.lt(x, g.scalar(high)))


def _clamp_dx(g: "Builder", node: Node, dy: Value) -> Value:
    (x,) = node.operands
    low, high = node.attrs["min"], node.attrs["max"]
    if high == math.inf:
        return _keep_where(g, g.ge(x, g.scalar(low)), dy)
    inside = g.le(x, g.scalar(high))
    if low != -math.inf:
        inside = g.logical_and(g.ge(x, g.scalar(low)), inside)
    return _keep_where(g, inside, dy)


def _hardtanh_dx(g: "Builder", node: Node, dy: Value) -> Value:
    low, high = node.attrs["min"], node.attrs["max"]
    if high == math.inf:
        return _keep_where(g, g.gt(node.result, g.scalar(low)), dy)
    if low == -math.inf:
        return _keep_where(g, g.lt(node.result, g.scalar(high)), dy)
    return _keep_where(g, _between(g, node.result, low, high), dy)


def _hard_swish_dx(g: "Builder", node: Node, dy: Value) -> Value:
    (x,) = node.operands
    slope = g.add(g.mul(x, g.scalar(1 / 3)), g.scalar(0.5))
    middle = g.where(g.gt(x, g.scalar(-3.0)), slope, g.scalar(0.0))
    return g.mul(dy, g.where(g.lt(x, g.scalar(3.0)), middle, g.scalar(1.0)))


def _pick_first(loses: str) -> Vjp:
    """Gradient of maximum or minimum for the first operand; ties get half, as in PyTorch."""

    def rule(g: "Builder", node: Node, dy: Value) -> Value:
        a, b = node.operands
        lost = g.emit(loses, a, b).result
        half = g.mul(dy, g.scalar(0.5))
        return g.where(g.eq(a, b), half, g.where(lost, g.scalar(0.0), dy))

    return rule


def _swap(rule: Vjp) -> Vjp:
    """Derive the second operand's rule from the first operand's."""

    def swapped(g: "Builder", node: Node, dy: Value) -> Value:
        a, b = node.operands
        return rule(g, Node(node.op, (b, a), node.results, node.attrs), dy)

    return swapped


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _first(node: Node) -> Value:
    return node.operands[0]


def _second(node: Node) -> Value:
    return node.operands[1]


UNARY: dict[str, tuple[Callable[..., Any], Vjp | None]] = {
    "neg": (np.negative, lambda g, n, dy: g.neg(dy)),
    "abs": (np.abs, lambda g, n, dy: g.mul(dy, g.sign(_first(n)))),
    "sign": (np.sign, zero_dx),
    "exp": (np.exp, lambda g, n, dy: g.mul(dy, n.result)),
    "log": (np.log, lambda g, n, dy: g.div(dy, _first(n))),
    "sqrt": (np.sqrt, lambda g, n, dy: g.div(g.mul(dy, g.scalar(0.5)), n.result)),
    "rsqrt": (
        lambda x: 1 / np.sqrt(x),
        lambda g, n, dy: g.mul(g.mul(dy, g.scalar(-0.5)), g.mul(n.result, g.square(n.result))),
    ),
    "reciprocal": (
        lambda x: 1 / x,
        lambda g, n, dy: g.neg(g.mul(dy, g.square(n.result))),
    ),
    "square": (np.square, lambda g, n, dy: g.mul(dy, g.mul(_first(n), g.scalar(2.0)))),
    "relu": (
        lambda x: np.maximum(x, 0),
        lambda g, n, dy: _keep_where(g, g.gt(n.result, g.scalar(0.0)), dy),
    ),
    "sigmoid": (
        _sigmoid,
        lambda g, n, dy: g.mul(dy, g.mul(n.result, g.sub(g.scalar(1.0), n.result))),
    ),
    "tanh": (
        np.tanh,
        lambda g, n, dy: g.mul(dy, g.sub(g.scalar(1.0), g.square(n.result))),
    ),
    "hard_sigmoid": (
        lambda x: np.clip(x * np.float32(1 / 6) + np.float32(0.5), 0, 1),
        lambda g, n, dy: _keep_where(
            g, _between(g, _first(n), -3.0, 3.0), g.mul(dy, g.scalar(1 / 6))
        ),
    ),
    "hard_swish": (
        lambda x: x * np.clip(x * np.float32(1 / 6) + np.float32(0.5), 0, 1),
        _hard_swish_dx,
    ),
}
"""Unary ops without attrs: the NumPy meaning, and dx (None: no gradient)."""

INTEGER_TOO = frozenset({"neg", "abs", "sign", "square", "relu"})
"""Ops that take integers as well as floats."""

STOP = "stop_gradient"
"""Identity without a gradient; handled by `compiler/autodiff.py`."""


def _limits(attrs: Attrs) -> tuple[float, float]:
    return attrs["min"], attrs["max"]


def _define_unary() -> None:
    for name, (meaning, rule) in UNARY.items():
        infer = numbers if name in INTEGER_TOO else _floats
        rules, linear = {"x": rule} if rule else {}, (0,) if name == "neg" else ()
        clamps = (lambda attrs: (0.0, math.inf)) if name == "relu" else None
        elementwise(name, "x", meaning, infer=infer, vjp=rules, linear=linear, clamps=clamps)
    elementwise(STOP, "x", lambda x: x, infer=_as_it_is, linear=(0,), shifts=(0,), stored=True)
    elementwise("logical_not", "x", np.logical_not, infer=_logical)
    elementwise(
        "clamp",
        "x",
        lambda x, min, max: np.clip(x, np.float32(min), np.float32(max)),
        attrs={"min": -math.inf, "max": math.inf},
        vjp={"x": _clamp_dx},
        clamps=_limits,
    )
    elementwise(  # like clamp, but its gradient is zero on the bounds (relu6 is hardtanh 0..6)
        "hardtanh",
        "x",
        lambda x, min, max: np.clip(x, np.float32(min), np.float32(max)),
        attrs={"min": -1.0, "max": 1.0},
        vjp={"x": _hardtanh_dx},
        clamps=_limits,
    )
    elementwise(
        "cast",
        "x",
        lambda x, dtype: converted(x, DType(dtype)),
        infer=_cast_type,
        stored=True,
        decodes=True,
        attrs={"dtype": REQUIRED},
    )


def _define_arithmetic() -> None:
    elementwise(
        "add",
        "a b",
        np.add,
        infer=same_dtype,
        vjp={"a": lambda g, n, dy: dy, "b": lambda g, n, dy: dy},
        linear=(0, 1),
        shifts=(0, 1),
    )
    elementwise(
        "sub",
        "a b",
        np.subtract,
        infer=same_dtype,
        vjp={"a": lambda g, n, dy: dy, "b": lambda g, n, dy: g.neg(dy)},
        linear=(0, 1),
        shifts=(0,),
    )
    elementwise(
        "mul",
        "a b",
        np.multiply,
        infer=same_dtype,
        vjp={
            "a": lambda g, n, dy: g.mul(dy, _second(n)),
            "b": lambda g, n, dy: g.mul(dy, _first(n)),
        },
        linear=(0, 1),
    )
    elementwise(
        "div",
        "a b",
        np.divide,
        vjp={
            "a": lambda g, n, dy: g.div(dy, _second(n)),
            "b": lambda g, n, dy: g.neg(g.mul(dy, g.div(n.result, _second(n)))),
        },
        linear=(0,),
    )


def _define_choices() -> None:
    extremes: tuple[tuple[str, Callable[..., Any], str], ...] = (
        ("maximum", np.maximum, "lt"),
        ("minimum", np.minimum, "gt"),
    )
    for name, meaning, loses in extremes:
        rule = _pick_first(loses)
        elementwise(name, "a b", meaning, infer=same_dtype, vjp={"a": rule, "b": _swap(rule)})
    elementwise(
        "where",
        "condition a b",
        np.where,
        infer=_where_type,
        vjp={
            "a": lambda g, n, dy: _keep_where(g, n.operands[0], dy),
            "b": lambda g, n, dy: g.where(n.operands[0], g.scalar(0.0), dy),
        },
        linear=(1, 2),
    )


def _define_comparisons() -> None:
    comparisons: dict[str, Callable[..., Any]] = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    for name, compare in comparisons.items():
        elementwise(name, "a b", compare, infer=_comparison)
    elementwise("logical_and", "a b", np.logical_and, infer=_logical)
    elementwise("logical_or", "a b", np.logical_or, infer=_logical)


_define_unary()
_define_arithmetic()
_define_choices()
_define_comparisons()
