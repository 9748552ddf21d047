"""Elementwise nodes as C statements over the vectors of pe_vec.h and pe_math.h.

Every value of a body becomes one local variable that holds PE_VL elements: `pe_vf` for floats,
`pe_vi` for integers, `pe_vl` for i64, and a mask of 0 and -1 in a `pe_vi` for bool. Masks only
combine bitwise: MASK_TEMPLATES has all their ops, CASTS their conversions. Variables are numbered
in order of appearance, never named after the user's values, so that equal bodies give equal text
and share one kernel. The caller emits loads, stores and indices.
"""

import math
from collections.abc import Iterable, Mapping, MutableMapping

import numpy as np

from pockengine.backends.native.numbers import real, whole
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code, Text, fill
from pockengine.compiler.ir import BOOL, F32, I32, I64, DType, Node, Value
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.errors import CompileError

TEMPLATES: dict[str, str] = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
}
"""Ops with the same C text for all number types."""

MASK_TEMPLATES: dict[str, str] = {
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "~{0}",
    "mul": "{0} & {1}",
    "minimum": "{0} & {1}",
    "add": "{0} | {1}",
    "maximum": "{0} | {1}",
    "square": "{0}",
    "eq": "~({0} ^ {1})",
    "ne": "{0} ^ {1}",
    "lt": "~{0} & {1}",
    "le": "~{0} | {1}",
    "gt": "{0} & ~{1}",
    "ge": "{0} | ~{1}",
}
"""Ops on bool, whose true is -1: numbers' arithmetic and order would be wrong."""

_ROUNDING = ("floor", "ceil", "round", "trunc")
_LIBRARY = (
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "erfc",
    "expm1",
    "log1p",
    "asinh",
    "acosh",
    "atanh",
    "lgamma",
    "digamma",
    "i0",
    "i1",
    "i0e",
    "i1e",
    "erf_inv",
    *_ROUNDING,
)

FLOAT_TEMPLATES: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "div": "{0} / {1}",
    "reciprocal": "1.0f / {0}",
    "maximum": "pe_maximum({0}, {1})",
    "minimum": "pe_minimum({0}, {1})",
    "relu": "pe_relu({0})",
    "abs": "pe_abs({0})",
    "sign": "pe_sign({0})",
    "exp": "pe_exp({0})",
    "log": "pe_log({0})",
    "sqrt": "pe_sqrt({0})",
    "rsqrt": "1.0f / pe_sqrt({0})",
    "tanh": "pe_tanh({0})",
    "erf": "pe_erf({0})",
    "sigmoid": "pe_sigmoid({0})",
    "hard_sigmoid": "pe_hard_sigmoid({0})",
    "hard_swish": "{0} * pe_hard_sigmoid({0})",
    "pow": "pe_pow({0}, {1})",
    "atan2": "pe_atan2({0}, {1})",
    "binary_cross_entropy": "pe_binary_cross_entropy({0}, {1})",
    "hypot": "pe_hypot({0}, {1})",
    "rem": "pe_rem({0}, {1})",
    "float_bits": "(pe_vi){0}",
    "zeta": "pe_zeta({0}, {1})",
    "igamma": "pe_igamma({0}, {1})",
    "igammac": "pe_igammac({0}, {1})",
    "igamma_da": "pe_igamma_da({0}, {1})",
    **{name: f"pe_{name}({{0}})" for name in _LIBRARY},
}
"""Ops on f32 only."""

INTEGER_TEMPLATES: dict[str, str] = {
    "add": "pe_add_{s}({0}, {1})",
    "sub": "pe_sub_{s}({0}, {1})",
    "mul": "pe_mul_{s}({0}, {1})",
    "neg": "pe_sub_{s}({0} ^ {0}, {0})",
    "square": "pe_mul_{s}({0}, {0})",
    "maximum": "pe_select_{s}({0} > {1}, {0}, {1})",
    "minimum": "pe_select_{s}({0} < {1}, {0}, {1})",
    "relu": "pe_select_{s}({0} > 0, {0}, {0} ^ {0})",
    "abs": "pe_select_{s}({0} < 0, pe_sub_{s}({0} ^ {0}, {0}), {0})",
    "sign": "({0} < 0) - ({0} > 0)",
    "quotient": "pe_quotient_{s}({0}, {1})",
    "rem": "pe_rem_{s}({0}, {1})",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "bit_xor": "{0} ^ {1}",
    "shift_left": "pe_shift_left_{s}({0}, {1})",
    "shift_right": "pe_shift_right_{s}({0}, {1})",
    "bits_float": "(pe_vf){0}",
}
"""Ops on i32 and i64; {s} is the letter of their vector type."""

QUANTIZED: dict[str, str] = {
    "quantize": "pe_quantize({0}, {1}, {low}, {high}, {zero})",
    "dequantize": "pe_dequantize({0}, {1}, {zero})",
    "rescale": "{rescale}({0}, {1}, {2})",
    "narrow": "pe_narrow_sb({0}, {low}, {high}, {zero})",
    "unclamped": "({0} > {low}) & ({0} < {high})",
}
"""Ops between real numbers and their quantized integers; the other fields are attrs."""

INTEGER_VECTORS: dict[str, str] = {"mul": "pe_mul({0}, {1})"}
"""Ops on f32 for vectors that hold floats as integers, which need function calls."""

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

CASTS: dict[tuple[DType, DType], str] = {
    (F32, I32): "pe_saturate_i({0})",
    (F32, I64): "pe_saturate_l({0})",
    (I32, F32): "pe_to_f({0})",
    (I32, I64): "pe_widen({0})",
    (I64, I32): "pe_narrow({0})",
    (I64, F32): "pe_wide_to_f({0})",
    (BOOL, F32): "pe_to_f(-{0})",
    (BOOL, I32): "-{0}",
    (BOOL, I64): "pe_widen(-{0})",
    (F32, DType.BF16): "pe_round_bf({0})",
    (F32, DType.F16): "pe_round_hf({0})",
    (DType.BF16, F32): "{0}",
    (DType.F16, F32): "{0}",
    (F32, DType.I8): "pe_clamp_i(pe_saturate_i({0}), -128, 127)",
    (F32, DType.U8): "pe_clamp_i(pe_saturate_i({0}), 0, 255)",
    (DType.I8, F32): "pe_to_f({0})",
    (DType.U8, F32): "pe_to_f({0})",
    (I32, DType.I8): "({0} << 24) >> 24",
    (I32, DType.U8): "{0} & 255",
    (DType.I8, I32): "{0}",
    (DType.U8, I32): "{0}",
    (F32, BOOL): "{0} != 0.0f",
    (I32, BOOL): "{0} != 0",
    (I64, BOOL): "pe_narrow({0} != 0)",
}
"""(from, to): a mask is -1 where true, hence the signs; integers wrap as NumPy's do."""


def literal(value: float | int | bool, dtype: DType, *, marked: bool = False) -> Code:
    """A C vector with one constant in every lane; floats round-trip exactly.

    `marked`: as a number that may be passed at run time.
    """
    if dtype is BOOL:
        return f"pe_splat_i({-int(bool(value))})"
    if dtype is I64:
        return f"pe_splat_l({int(value)})"
    text = scalar(float(value)) if dtype.is_float else str(int(value))
    if dtype.is_float:
        return fill("pe_splat({})", real(text) if marked else text)
    return fill("pe_splat_i({})", whole(text) if marked else text)


def scalar(value: float) -> str:
    """A C float literal that round-trips this value rounded to f32."""
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    text = f"{float(np.float32(value)):.9g}"
    return f"{text if any(mark in text for mark in '.e') else text + '.0'}f"


def check_expression(node: Node) -> str:
    """Return the template of an elementwise node; CompileError if there is none."""
    template = _template(node)
    if template is None:
        types = ", ".join(operand.dtype.value for operand in node.operands)
        raise CompileError(f"{node}: the C backend has no elementwise {node.op} of {types}")
    return template


def expression(node: Node, names: Mapping[Value, Code], by_integers: bool = False) -> Text:
    """The C expression of one elementwise node; its operands are the variables in `names`.

    `by_integers`: in vectors that hold floats as integers.
    """
    template = check_expression(node)
    if by_integers and node.result.dtype is F32:
        template = INTEGER_VECTORS.get(node.op, template)
    return fill(template, *(names[operand] for operand in node.operands), **_fields(node))


def emit_nodes(
    nodes: Iterable[Node],
    names: MutableMapping[Value, Code],
    constants: Mapping[Value, np.ndarray],
    prefix: str = "t",
    by_integers: bool = False,
) -> list[Code]:
    """One statement per node, in order; every new value is added to `names`.

    `names` has the variables of all values from outside; constants of one element (a body has no
    others) become literals.
    """
    lines: list[Code] = []
    nodes = tuple(nodes)
    ranges = {} if by_integers else _ranges(nodes, constants)
    bounds = {bound for compared in ranges.values() for bound in compared}
    for node in nodes:
        for operand in node.operands:
            if operand not in names and operand in constants:
                names[operand] = literal(_element(constants, operand), operand.dtype, marked=True)
        if node in bounds:
            names[node.result] = fill("({})", expression(node, names))
            continue
        variable = f"{prefix}{len(lines)}"
        kind = c_scalar(node.result.dtype).vector
        if node in ranges:
            x, high = ranges[node][1].operands
            computed = fill("pe_in_range({}, {})", names[x], names[high])
        else:
            computed = expression(node, names, by_integers)
        lines.append(fill("const {} {} = {};", kind, variable, computed))
        names[node.result] = variable
    return lines


def _ranges(
    nodes: Iterable[Node], constants: Mapping[Value, np.ndarray]
) -> dict[Node, tuple[Node, Node]]:
    """Find masks of 0 < x < high, as of a ReLU6's gradient, each with its two comparisons."""
    found = {}
    for node in nodes:
        compared = [operand.node for operand in node.operands]
        if node.op != "logical_and" or [each and each.op for each in compared] != ["gt", "lt"]:
            continue
        low, high = (each for each in compared if each)
        limits = low.operands[1], high.operands[1]
        if low.operands[0] is not high.operands[0] or low.operands[0].dtype is not F32:
            continue
        if all(limit in constants for limit in limits):
            numbers = [_element(constants, limit) for limit in limits]
            if numbers[0] == 0 < numbers[1]:
                found[node] = low, high
    return found


def _element(constants: Mapping[Value, np.ndarray], value: Value) -> float:
    """Return the only element of a constant."""
    element: float = numbers_of(constants[value]).reshape(-1)[0].item()
    return element


def _template(node: Node) -> str | None:
    dtype = node.operands[0].dtype
    if node.op in ("cast", "where", "clamp", "hardtanh"):
        return _special(node)
    if node.op in QUANTIZED:
        return QUANTIZED[node.op]
    if dtype is BOOL:
        return MASK_TEMPLATES.get(node.op)
    if node.op in COMPARISONS and dtype is I64:
        return f"pe_narrow({TEMPLATES[node.op]})"
    if node.op in TEMPLATES:
        return TEMPLATES[node.op]
    if dtype is F32:
        return FLOAT_TEMPLATES.get(node.op)
    return INTEGER_TEMPLATES.get(node.op)


def _fields(node: Node) -> dict[str, Code]:
    """Return the fields of a node's template beside its operands."""
    if node.op not in QUANTIZED:
        return {"s": c_scalar(node.operands[0].dtype).vector[-1]}
    kind = [f"_{name}" for name in ("once", "down") if node.attrs.get(name)]
    fields: dict[str, Code] = {"rescale": "".join(["pe_rescale", *kind])}
    for name in ("zero", "low", "high"):
        value = node.attrs.get(name, 0)
        number = "INT32_MIN" if value == -(1 << 31) else str(value)
        # instructions clamp to the limits of bytes, where these are known
        is_open = name == "zero" or node.op == "unclamped" or node.result.dtype is I32
        fields[name] = whole(number) if is_open else number
    return fields


def _special(node: Node) -> str | None:
    """Ops whose C text depends on an attr or on the result type."""
    if node.op == "cast":
        source, target = node.operands[0].dtype, node.result.dtype
        return "{0}" if source is target else CASTS.get((source, target))
    if node.op == "where":
        return c_scalar(node.result.dtype).select
    if node.operands[0].dtype is not F32:
        return None
    bounds = [float(node.attrs[name]) for name in ("min", "max")]
    if any(math.isnan(bound) for bound in bounds):
        return f"{{0}} + {scalar(math.nan)}"
    return f"pe_clamp({{0}}, {scalar(bounds[0])}, {scalar(bounds[1])})"
