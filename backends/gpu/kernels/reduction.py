"""Reductions, with the elementwise nodes before them in a fusion: a tree for each result.

Results are the kept dimensions, their elements the reduced ones. If the innermost dimension is
kept, a group computes several results at once, so its items read adjacent elements.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pockengine.backends.gpu.kernel import GpuKernel, Stage, block, define_kernel
from pockengine.backends.gpu.kernels.fused import FusedOperands, compute, end, open_node
from pockengine.backends.gpu.places import strided
from pockengine.backends.gpu.scalars import literal, scalar_of
from pockengine.backends.space import broadcast_strides, collapse
from pockengine.compiler.ir import F32, I32, DType, Node, Value

OPS = frozenset(
    {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"}
    | {"moments", "batch_norm_sums"}
)
GROUP = 256
ACROSS = 32
"""Results of a group whose items read adjacent elements: a warp."""


@dataclass(frozen=True)
class Tree:
    """A number of results of a number of elements; `across`: adjacent elements are of different
    results.
    """

    results: int
    count: int
    across: bool

    @property
    def sides(self) -> tuple[int, int]:
        """Results of a group, and items per result, as powers of two."""
        x = min(ACROSS, _power(self.results)) if self.across else 1
        return x, min(GROUP // x, _power(self.count))


@dataclass(frozen=True)
class _Combined:
    """How numbers of a type are combined: the initial value, and a template of two."""

    start: str
    combine: str


def reduction_kernel(node: Node) -> GpuKernel:
    """Emit a reduction, or a fusion around one."""
    opened = open_node(node)
    anchor = opened.anchor
    assert anchor is not None
    full = anchor.operands[0].shape
    axes = tuple(anchor.attrs.get("axes", range(len(full) - 1)))
    outer = [axis for axis in range(len(full)) if axis not in axes]
    tree = Tree(
        math.prod(full[axis] for axis in outer),
        math.prod(full[axis] for axis in axes),
        across=len(full) - 1 in outer and full[-1] > 1,
    )
    elements = _elements(opened, _Walk(full, tuple(outer), axes))
    if anchor.op == "moments":
        last = end(opened, "r", mean="s0", variance="s1")
        stage = tree_stage(tree, elements, last, "moments.inc.h")
    else:
        stage = _sums(opened, tree, elements)
    return define_kernel(opened.title, opened.parameters, [stage])


def tree_stage(
    tree: Tree,
    elements: Sequence[str],
    last: Sequence[str],
    template: str = "reduce.inc.h",
    macros: Mapping[str, object] = MappingProxyType({}),
    helpers: str = "",
) -> Stage:
    """Return the stage of a reduction tree: statements for element q of result r, and for its end.

    By default it is one sum of floats.
    """
    x, y = tree.sides
    sums = {
        "PE_TYPE": "float",
        "PE_START": "0.0f",
        "PE_VALUES": 1,
        "PE_COMBINE(a, b)": "((a) + (b))",
    }
    definitions = {
        **({} if template == "moments.inc.h" else {**sums, **macros}),
        "PE_RESULTS": tree.results,
        "PE_COUNT": tree.count,
        "PE_X": x,
        "PE_Y": y,
        "PE_ELEMENTS(r, q)": block(elements),
        "PE_END(s0, s1, r)": block(last),
    }
    return Stage(-(-tree.results // x), x * y, definitions, template=template, helpers=helpers)


def _sums(opened: FusedOperands, tree: Tree, elements: Sequence[str]) -> Stage:
    anchor = opened.anchor
    assert anchor is not None
    dtype = anchor.results[0].dtype
    combined = _combined(anchor.op, dtype)
    register = scalar_of(dtype).register
    macros = {
        "PE_TYPE": register,
        "PE_START": combined.start,
        "PE_VALUES": len(anchor.results),
        "PE_COMBINE(a, b)": combined.combine,
    }
    first = f"(s0 / {literal(tree.count, F32)})" if anchor.op == "reduce_mean" else "s0"
    return tree_stage(tree, elements, end(opened, "r", s0=first, s1="s1"), macros=macros)


def _combined(op: str, dtype: DType) -> _Combined:
    ends = {
        F32: ("(-PE_INFINITY)", "PE_INFINITY"),
        I32: ("(-2147483647 - 1)", "2147483647"),
        DType.I64: ("(-9223372036854775807 - 1)", "9223372036854775807"),
    }
    compare = "pe_{0}((a), (b))" if dtype is F32 else "((a) {1} (b) ? (a) : (b))"
    low, high = ends.get(dtype, ("0", "1"))
    kinds = {
        "reduce_max": _Combined(low, compare.format("maximum", ">")),
        "reduce_min": _Combined(high, compare.format("minimum", "<")),
        "reduce_prod": _Combined(literal(1, dtype), "((a) * (b))"),
    }
    return kinds.get(op, _Combined(literal(0, dtype), "((a) + (b))"))


@dataclass(frozen=True)
class _Walk:
    """Offset of element q of result r in an operand that broadcasts to the full shape."""

    full: tuple[int, ...]
    outer: tuple[int, ...]
    reduced: tuple[int, ...]

    def __call__(self, value: Value) -> str:
        """Return the offset as text."""
        strides = broadcast_strides(value.shape, self.full)
        parts = [self._part("r", self.outer, strides), self._part("q", self.reduced, strides)]
        return " + ".join(part for part in parts if part != "0") or "0"

    def _part(self, index: str, axes: tuple[int, ...], strides: tuple[int, ...]) -> str:
        sizes, (walk,), _ = collapse(
            [self.full[axis] for axis in axes], [tuple(strides[axis] for axis in axes)]
        )
        return strided(index, sizes, walk)


def _elements(opened: FusedOperands, walk: _Walk) -> list[str]:
    """Return statements that declare e0 and e1."""
    anchor = opened.anchor
    assert anchor is not None
    names: dict[Value, str] = {}
    lines = compute(opened, opened.before, names, walk)
    for value in anchor.operands[: 2 if anchor.op == "batch_norm_sums" else 1]:
        if value not in names:
            kind, pointer = scalar_of(value.dtype), opened.pointers[value]
            names[value] = f"v{pointer}"
            load = kind.load.format(pointer, walk(value))
            lines.append(f"const {kind.register} v{pointer} = {load};")
    first = names[anchor.operands[0]]
    register = scalar_of(anchor.results[0].dtype).register
    second = first
    if anchor.op == "batch_norm_sums":
        mean, rstd = (opened.pointers[value] for value in anchor.operands[2:])
        second = f"{first} * ({names[anchor.operands[1]]} - {mean}[r]) * {rstd}[r]"
    return [*lines, f"const {register} e0 = {first};", f"const {register} e1 = {second};"]


def _power(size: int) -> int:
    """Return the least power of two that is not smaller."""
    return 1 << max(0, size - 1).bit_length()
