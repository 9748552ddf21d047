"""Pointer accesses of elementwise and reduction kernels, and the tile's C function.

The kernel walks a `IterationSpace`: outer, row and column are the C variables of its position.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from pockengine.backends.native.expression import emit_nodes
from pockengine.backends.native.kernel import SYMBOL, Parameter
from pockengine.backends.native.numbers import FIELDS, VALUES, whole
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code, Text, fill, indented, joined
from pockengine.backends.space import IterationSpace, Strides
from pockengine.compiler.ir import BOOL, Node, Value

PAIR_BELOW, PAIR_ABOVE = 256, 1008
"""Bytes before and after a pointer that AArch64's moves of two vectors reach."""


@dataclass(frozen=True)
class Access:
    """How a kernel walks the elements behind one pointer: strides of outer, rows and column.

    The column's stride is 1, or 0 if the operand is broadcast along the columns. Dimension `along`
    of the space, if any, is looked up in the constant table `table`. `stepped`: the kernel has a
    pointer of its own to the row's elements.
    """

    name: str
    value: Value
    strides: Strides
    start: int = 0
    along: int | None = None
    table: Code = ""
    stepped: bool = False

    @property
    def gathers(self) -> bool:
        """Whether adjacent columns are not contiguous."""
        return self.along == len(self.strides) - 1


def address(access: Access, space: IterationSpace, row: str = "row") -> Text:
    """The C expression of the first element for (outer, row, column)."""
    if access.stepped:
        return fill("p_{}", access.name)
    outers = len(space.outer)
    terms: list[Code] = [f"io->{access.name}"]
    if access.start:
        terms.append(whole(access.start))
    terms += _offsets("outer", space.outer, access, 0)
    terms += _offsets(row, space.row_sizes, access, outers)
    if access.strides[-1] and space.columns > 1 and not access.gathers:
        terms.append("column")
    return joined(" + ", terms)


def _offsets(index: str, sizes: Sequence[int], access: Access, first: int) -> list[Code]:
    """Terms of an address from one index over several dimensions, from `first` on."""
    strides = access.strides[first : first + len(sizes)]
    simple = index if index.isidentifier() else f"({index})"
    terms: list[Code] = []
    for place, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride == 0 or size == 1:
            continue
        inner = math.prod(sizes[place + 1 :])
        at: Code = fill("{} / {}", simple, whole(inner)) if inner > 1 else simple
        if math.prod(sizes[:place]) > 1:
            at = fill("{} % {}", at, whole(size))
        if access.along == first + place:
            at = fill("{}[{}]", access.table, at)
        terms.append(fill("{} * {}", at, whole(stride)))
    return terms


def row_invariant(access: Access, space: IterationSpace) -> bool:
    """Whether every row reads the same elements."""
    return not any(access.strides[len(space.outer) : -1])


def load(access: Access, space: IterationSpace, row: str = "row") -> Text:
    """The C expression of a vector of the operand's elements; the lanes past `lanes` are zero."""
    suffix = c_scalar(access.value.dtype).suffix
    where = address(access, space, row)
    if access.strides[-1] == 0:
        splat = "_i(-" if access.value.dtype is BOOL else f"{suffix}("
        return fill("pe_splat{}*({}))", splat, where)
    if access.gathers:
        return fill("PE_FN(gather)({}, column, lanes)", where)
    return fill("pe_load_part{}({}, lanes)", suffix, where)


def store(access: Access, space: IterationSpace, variable: Code, row: str = "row") -> Text:
    """The C statement that stores a vector."""
    suffix, where = c_scalar(access.value.dtype).suffix, address(access, space, row)
    if access.gathers:
        return fill("PE_FN(scatter)({}, {}, column, lanes);", where, variable)
    return fill("pe_store_part{}({}, {}, lanes);", suffix, where, variable)


def io_struct(parameters: Sequence[Parameter]) -> Text:
    """The struct of all pointers. PE_FN(name) makes a helper's name unique to the kernel."""
    fields = "\n".join(f"    {parameter};" for parameter in parameters)
    return fill("typedef struct PE_FN(io) {{\n{}\n{}}} PE_FN(io);", fields, FIELDS)


def io_value(parameters: Sequence[Parameter]) -> Text:
    """The statement that fills the struct from the kernel's parameters."""
    fields = ", ".join(f".{parameter.name} = {parameter.name}" for parameter in parameters)
    return fill("const {}_io io = {{{}{}}};", SYMBOL, fields, VALUES)


@dataclass(frozen=True)
class Body:
    """The computation of a tile: loads, elementwise nodes, and outputs.

    `stores` go to memory; `values` go to v[k][i] for row i, the input of a reduction. `bound`
    values are C expressions. `by_integers`: floats are in integer vectors.
    `paired`: one instruction moves two vectors, which reaches few rows. `tiled`: tiles follow each
    other in a block.
    """

    accesses: Mapping[Value, Access]
    nodes: Sequence[Node]
    constants: Mapping[Value, np.ndarray]
    stores: Sequence[tuple[Value, Access]] = ()
    values: Sequence[Value] = ()
    bound: Mapping[Value, Code] = field(default_factory=dict)
    by_integers: bool = False
    paired: bool = False
    tiled: bool = False


def tile_function(body: Body, space: IterationSpace, name: str, extra: str = "") -> Text:
    """The function that evaluates a body for `rows` rows of `lanes` columns."""
    needed = _needed(body)
    constant = _row_invariant(body, space, needed)
    names = dict(body.bound)
    body, before, inside = _stepped(body, space, needed)
    for value, access in body.accesses.items():
        if value in needed:
            row = "row" if value in constant else "row + i"
            variable = f"{'a' if value in constant else 'x'}{len(names)}"
            kind, loaded = c_scalar(value.dtype).vector, load(access, space, row)
            line = fill("const {} {} = {};", kind, variable, loaded)
            (before if value in constant else inside).append(line)
            names[value] = variable
    fixed = [node for node in body.nodes if node.result in constant and node.result in needed]
    moving = [node for node in body.nodes if node.result in needed and node.result not in constant]
    before += emit_nodes(fixed, names, body.constants, prefix="b", by_integers=body.by_integers)
    inside += emit_nodes(moving, names, body.constants, prefix="t", by_integers=body.by_integers)
    inside += [store(access, space, names[value], "row + i") for value, access in body.stores]
    inside += [
        fill("v[{}][i] = {};", index, names[value]) for index, value in enumerate(body.values)
    ]
    return _render_tile(name, extra, before, inside)


def _stepped(
    body: Body, space: IterationSpace, needed: Set[Value]
) -> tuple[Body, list[Code], list[Code]]:
    """Return a body whose pointers step from row to row, what defines them, and what steps them."""
    before: list[Code] = []
    inside: list[Code] = []

    def step(access: Access) -> Access:
        stride = access.strides[len(space.outer)]
        plain = access.along is None and not access.gathers
        if not (body.paired and plain and stride and len(space.row_sizes) == 1):
            return access
        kind, size = c_scalar(access.value.dtype).ctype, stride * access.value.dtype.itemsize
        const = "const " if access.name.startswith("x") else ""
        start = address(access, space)
        before.append(fill("{}{} *p_{} = {};", const, kind, access.name, start))
        below, above = PAIR_BELOW // size, PAIR_ABOVE // size
        first = 0 if body.tiled else above + 1
        reach = f"{stride}, {first}, {below}, {below + 1 + above}"
        inside.append(f"PE_STEP_ROW(p_{access.name}, i, {reach});")
        return replace(access, stepped=True)

    accesses = {
        value: step(access) if value in needed else access
        for value, access in body.accesses.items()
    }
    stores = [(value, step(access)) for value, access in body.stores]
    return replace(body, accesses=accesses, stores=stores), before, inside


def _render_tile(name: str, extra: str, before: Sequence[Code], inside: Sequence[Code]) -> Text:
    lines = [
        f"PE_INLINE void PE_FN({name})(const PE_FN(io) *io, const ptrdiff_t outer,",
        "    const ptrdiff_t row, const ptrdiff_t column, const int lanes,",
        f"    const int rows{extra}) {{",
        "    (void)io, (void)outer, (void)row, (void)column, (void)lanes;",
        *indented(before),
        "    PE_UNROLL",
        "    for (int i = 0; i < rows; i++) {",
        *indented(inside, 8),
        "    }",
        "}",
    ]
    return joined("\n", lines)


def _needed(body: Body) -> set[Value]:
    """Values that a store depends on."""
    needed = {value for value, _ in body.stores} | set(body.values)
    for node in reversed(body.nodes):
        if node.result in needed:
            needed |= set(node.operands)
    return needed


def _row_invariant(body: Body, space: IterationSpace, needed: set[Value]) -> set[Value]:
    """Loaded and computed values that are the same in every row."""
    same = {
        value
        for value, access in body.accesses.items()
        if value in needed and row_invariant(access, space)
    }
    for node in body.nodes:
        outside = [operand for operand in node.operands if operand not in body.constants]
        if all(operand in same for operand in outside):
            same.add(node.result)
    return same
