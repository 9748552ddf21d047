"""Elementwise nodes as statements of the dialect, an element at a time.

Every value of a body becomes one local variable; a bool is 0 or 1. Variables are numbered in order
of appearance, never named after the user's values, so that equal bodies give equal text. The caller
emits loads, stores and indices.
"""

from collections.abc import Iterable, Mapping, MutableMapping

import numpy as np

from pockengine.backends.gpu.scalars import literal, scalar_of
from pockengine.compiler.ir import BOOL, F32, I32, I64, DType, Node, Value
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.errors import CompileError

NUMBERS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
}
"""Ops with the same text for all number types."""

_LIBRARY = {
    **{name: name for name in ("exp", "log", "sqrt", "tanh", "erf", "erfc", "expm1", "log1p")},
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: name for name in ("asinh", "acosh", "atanh", "floor", "ceil", "trunc", "lgamma")},
    "round": "rint",
    "abs": "fabs",
}
_LIBRARY_2 = {"pow": "pow", "atan2": "atan2", "hypot": "hypot", "rem": "fmod"}

FLOATS: dict[str, str] = {
    "div": "{0} / {1}",
    "reciprocal": "1.0f / {0}",
    "rsqrt": "1.0f / PE_MATH(sqrt)({0})",
    "maximum": "pe_maximum({0}, {1})",
    "minimum": "pe_minimum({0}, {1})",
    "relu": "{0} < 0.0f ? 0.0f : {0}",
    "sign": "pe_sign({0})",
    "sigmoid": "1.0f / (1.0f + PE_MATH(exp)(-{0}))",
    "hard_sigmoid": "pe_clamp({0} * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f)",
    "hard_swish": "{0} * pe_clamp({0} * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f)",
    "float_bits": "pe_float_bits({0})",
    **{op: f"PE_MATH({name})({{0}})" for op, name in _LIBRARY.items()},
    **{op: f"PE_MATH({name})({{0}}, {{1}})" for op, name in _LIBRARY_2.items()},
}
"""Ops on f32 only. NaN propagates, so a diverging training is detected."""

INTEGERS: dict[str, str] = {
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
    "relu": "{0} > 0 ? {0} : 0",
    "abs": "{0} < 0 ? -{0} : {0}",
    "sign": "({0} > 0) - ({0} < 0)",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "bit_xor": "{0} ^ {1}",
    "quotient": "pe_quotient_{s}({0}, {1})",
    "rem": "pe_remainder_{s}({0}, {1})",
    "shift_left": "pe_left_{s}({0}, {1})",
    "shift_right": "pe_right_{s}({0}, {1})",
    "bits_float": "pe_bits_float({0})",
}
"""Ops on i32 and i64; {s} is the number of bits."""

BOOLS: dict[str, str] = {
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "!{0}",
    "mul": "{0} & {1}",
    "minimum": "{0} & {1}",
    "add": "{0} | {1}",
    "maximum": "{0} | {1}",
    "square": "{0}",
    **{op: NUMBERS[op] for op in ("eq", "ne", "lt", "le", "gt", "ge")},
}
"""Ops on bool, which is 0 or 1."""

CASTS: dict[tuple[DType, DType], str] = {
    (F32, I32): "pe_saturated({0})",
    (F32, I64): "pe_saturated_i64({0})",
    (I32, F32): "(float){0}",
    (I64, F32): "(float){0}",
    (I32, I64): "(pe_i64){0}",
    (I64, I32): "(int){0}",
    (BOOL, F32): "(float){0}",
    (BOOL, I32): "{0}",
    (BOOL, I64): "(pe_i64){0}",
    (F32, BOOL): "{0} != 0.0f",
    (I32, BOOL): "{0} != 0",
    (I64, BOOL): "{0} != 0",
    (F32, DType.BF16): "pe_from_bf16(pe_to_bf16({0}))",
    (F32, DType.F16): "pe_rounded_half({0})",
    (DType.BF16, F32): "{0}",
    (DType.F16, F32): "{0}",
}
"""(from, to)."""

BY_ATTRS = frozenset({"cast", "where", "clamp", "hardtanh"})
OPS = BY_ATTRS | NUMBERS.keys() | FLOATS.keys() | INTEGERS.keys() | BOOLS.keys()
"""Elementwise ops that have a text for some type."""


def expression(node: Node, names: Mapping[Value, str]) -> str:
    """Return one elementwise node's text; its operands are the variables in `names`.

    CompileError if the dialect has none for its types.
    """
    template = _template(node)
    if template is None:
        types = ", ".join(operand.dtype.value for operand in node.operands)
        raise CompileError(f"{node}: the GPU backend has no elementwise {node.op} of {types}")
    return template.format(*(names[operand] for operand in node.operands))


def emit_nodes(
    nodes: Iterable[Node],
    names: MutableMapping[Value, str],
    constants: Mapping[Value, np.ndarray],
) -> list[str]:
    """Return one statement per node, in order; every new value is added to `names`.

    `names` has the variables of all values from outside; constants of one element become literals.
    """
    lines: list[str] = []
    for node in nodes:
        for operand in node.operands:
            if operand not in names and operand in constants:
                element = numbers_of(constants[operand]).reshape(-1)[0].item()
                names[operand] = literal(element, operand.dtype)
        variable = f"t{len(lines)}"
        register = scalar_of(node.result.dtype).register
        lines.append(f"const {register} {variable} = {expression(node, names)};")
        names[node.result] = variable
    return lines


def _template(node: Node) -> str | None:
    dtype = node.operands[0].dtype
    if node.op in BY_ATTRS:
        return _by_attrs(node)
    if dtype is BOOL:
        return BOOLS.get(node.op)
    if node.op in NUMBERS and dtype in (F32, I32, I64):
        return NUMBERS[node.op]
    template = {F32: FLOATS, I32: INTEGERS, I64: INTEGERS}.get(dtype, {}).get(node.op)
    return template and template.replace("{s}", str(8 * dtype.itemsize))


def _by_attrs(node: Node) -> str | None:
    """Return the text of an op that depends on an attr or on the type of the result."""
    source, target = node.operands[0].dtype, node.result.dtype
    if node.op == "cast":
        return "{0}" if source is target else CASTS.get((source, target))
    if node.op == "where":
        return "{0} ? {1} : {2}"
    if source is not F32:
        return None
    low, high = (literal(node.attrs[name], F32) for name in ("min", "max"))
    return f"pe_clamp({{0}}, {low}, {high})"
