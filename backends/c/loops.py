"""Iteration spaces and accesses: where each pointer of an elementwise or reduction kernel is.

A kernel walks a space of (outer, row, column). Columns are the contiguous innermost dimension,
taken a vector at a time. Rows are the dimension above, taken in tiles, so that what is the same in
every row is loaded and computed once. Outer is everything else, as one number. Dimensions are
collapsed as far as all operands allow: an addition of equal shapes has one row, a bias one outer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pockengine.backends.c.epilogue import SUFFIX
from pockengine.backends.c.expression import VECTOR_TYPES, emit_nodes
from pockengine.backends.c.kernel import SYMBOL, Parameter
from pockengine.compiler.ir import BOOL, Node, Value

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """Sizes of the collapsed dimensions: outer ones, those of the rows (mostly one), columns."""

    outer: tuple[int, ...]
    row_sizes: tuple[int, ...]
    columns: int

    @property
    def outers(self) -> int:
        """Iterations of all outer dimensions together."""
        return math.prod(self.outer)

    @property
    def rows(self) -> int:
        """Rows of one outer."""
        return math.prod(self.row_sizes)

    def __str__(self) -> str:
        return "x".join(map(str, (*self.outer, *self.row_sizes, self.columns)))


@dataclass(frozen=True)
class Access:
    """How a kernel walks the elements behind one pointer: strides of outer, rows and column.

    The column's stride is 1, or 0 where the operand is broadcast along the columns. Dimension
    `along` of the space, if any, is looked up in the constant table `table`.
    """

    name: str
    value: Value
    strides: Strides
    start: int = 0
    along: int | None = None
    table: str = ""

    @property
    def gathers(self) -> bool:
        """Whether neighbouring columns lie anywhere."""
        return self.along == len(self.strides) - 1


def contiguous_strides(shape: Sequence[int]) -> Strides:
    """Strides, in elements, of a row-major tensor."""
    return tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))


def broadcast_strides(shape: Sequence[int], full: Sequence[int]) -> Strides:
    """Strides of a tensor read as if it had shape `full`: 0 where it is broadcast."""
    lead = len(full) - len(shape)
    own = contiguous_strides(shape)
    kept = (stride if size != 1 else 0 for stride, size in zip(own, shape, strict=True))
    return (0,) * lead + tuple(kept)


def collapse(
    sizes: Sequence[int], strides: Sequence[Strides], kinds: Sequence[object] | None = None
) -> tuple[list[int], list[Strides], list[object]]:
    """Drop dimensions of one element and merge neighbours of the same kind that all walk as one."""
    labels = list(kinds) if kinds is not None else [None] * len(sizes)
    merged: list[int] = []
    kept: list[object] = []
    walks: list[list[int]] = [[] for _ in strides]
    for index, size in enumerate(sizes):
        if size == 1:
            continue
        fits = all(
            walk and walk[-1] == own[index] * size for walk, own in zip(walks, strides, strict=True)
        )
        if merged and kept[-1] == labels[index] and fits:
            merged[-1] *= size
            for walk, own in zip(walks, strides, strict=True):
                walk[-1] = own[index]
        else:
            merged.append(size)
            kept.append(labels[index])
            for walk, own in zip(walks, strides, strict=True):
                walk.append(own[index])
    return merged, [tuple(walk) for walk in walks], kept


def space_of(sizes: Sequence[int], strides: Sequence[Strides]) -> tuple[Space, list[Strides]]:
    """The space of collapsed dimensions, and the strides padded to its rank."""
    missing = max(0, 2 - len(sizes))
    padded = [1] * missing + list(sizes)
    walks = [(0,) * missing + walk for walk in strides]
    return Space(tuple(padded[:-2]), (padded[-2],), padded[-1]), walks


def address(access: Access, space: Space, row: str = "row") -> str:
    """The C expression of the first element for (outer, row, column)."""
    outers = len(space.outer)
    terms = [f"io->{access.name}"]
    if access.start:
        terms.append(str(access.start))
    terms += _offsets("outer", space.outer, access, 0)
    terms += _offsets(row, space.row_sizes, access, outers)
    if access.strides[-1] and space.columns > 1 and not access.gathers:
        terms.append("column")
    return " + ".join(terms)


def _offsets(index: str, sizes: Sequence[int], access: Access, first: int) -> list[str]:
    """Terms of an address that come from one index over several dimensions, from `first` on."""
    strides = access.strides[first : first + len(sizes)]
    simple = index if index.isidentifier() else f"({index})"
    terms = []
    for place, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride == 0 or size == 1:
            continue
        inner = math.prod(sizes[place + 1 :])
        at = f"{simple} / {inner}" if inner > 1 else simple
        wraps = math.prod(sizes[:place]) > 1
        place_of = f"{at}{f' % {size}' if wraps else ''}"
        if access.along == first + place:
            place_of = f"{access.table}[{place_of}]"
        terms.append(f"{place_of} * {stride}")
    return terms


def row_invariant(access: Access, space: Space) -> bool:
    """Whether every row reads the same elements."""
    return not any(access.strides[len(space.outer) : -1])


def load(access: Access, space: Space, row: str = "row") -> str:
    """The C expression of a vector of the operand's elements; the lanes past `lanes` are zero."""
    suffix = SUFFIX[access.value.dtype]
    where = address(access, space, row)
    if access.strides[-1] == 0:
        sign = "-" if access.value.dtype is BOOL else ""
        return f"pe_splat{'_i' if access.value.dtype is BOOL else suffix}({sign}*({where}))"
    if access.gathers:
        return f"PE_FN(gather)({where}, column, lanes)"
    return f"pe_load_part{suffix}({where}, lanes)"


def store(access: Access, space: Space, variable: str, row: str = "row") -> str:
    """The C statement that stores a vector."""
    suffix, where = SUFFIX[access.value.dtype], address(access, space, row)
    if access.gathers:
        return f"PE_FN(scatter)({where}, {variable}, column, lanes);"
    return f"pe_store_part{suffix}({where}, {variable}, lanes);"


def io_struct(parameters: Sequence[Parameter]) -> str:
    """The struct of all pointers. PE_FN(name) gives a helper the kernel's own name for it."""
    fields = "\n".join(f"    {parameter};" for parameter in parameters)
    return f"typedef struct PE_FN(io) {{\n{fields}\n}} PE_FN(io);"


def io_value(parameters: Sequence[Parameter]) -> str:
    """The statement that fills the struct from the kernel's parameters."""
    fields = ", ".join(f".{parameter.name} = {parameter.name}" for parameter in parameters)
    return f"const {SYMBOL}_io io = {{{fields}}};"


@dataclass(frozen=True)
class Body:
    """What a tile computes: loads, elementwise nodes, and the values that leave it.

    `stores` go to memory; `values` go to v[k][i] for row i, the input of a reduction. `given`
    values are C expressions already.
    """

    accesses: Mapping[Value, Access]
    nodes: Sequence[Node]
    constants: Mapping[Value, np.ndarray]
    stores: Sequence[tuple[Value, Access]] = ()
    values: Sequence[Value] = ()
    given: Mapping[Value, str] = field(default_factory=dict)


def tile_function(body: Body, space: Space, name: str, extra: str = "") -> str:
    """The function that evaluates a body for `rows` rows of `lanes` columns."""
    needed = _needed(body)
    constant = _row_invariant(body, space, needed)
    names = dict(body.given)
    before: list[str] = []
    inside: list[str] = []
    for value, access in body.accesses.items():
        if value in needed:
            row = "row" if value in constant else "row + i"
            variable = f"{'a' if value in constant else 'x'}{len(names)}"
            line = f"const {VECTOR_TYPES[value.dtype]} {variable} = {load(access, space, row)};"
            (before if value in constant else inside).append(line)
            names[value] = variable
    fixed = [node for node in body.nodes if node.result in constant and node.result in needed]
    moving = [node for node in body.nodes if node.result in needed and node.result not in constant]
    before += emit_nodes(fixed, names, body.constants, "b")
    inside += emit_nodes(moving, names, body.constants, "t")
    inside += [store(access, space, names[value], "row + i") for value, access in body.stores]
    inside += [f"v[{index}][i] = {names[value]};" for index, value in enumerate(body.values)]
    return _render_tile(name, extra, before, inside)


def _render_tile(name: str, extra: str, before: Sequence[str], inside: Sequence[str]) -> str:
    lines = [
        f"PE_INLINE void PE_FN({name})(const PE_FN(io) *io, const ptrdiff_t outer,",
        "    const ptrdiff_t row, const ptrdiff_t column, const int lanes,",
        f"    const int rows{extra}) {{",
        "    (void)io, (void)outer, (void)row, (void)column, (void)lanes;",
        *(f"    {line}" for line in before),
        "    PE_UNROLL",
        "    for (int i = 0; i < rows; i++) {",
        *(f"        {line}" for line in inside),
        "    }",
        "}",
    ]
    return "\n".join(lines)


def _needed(body: Body) -> set[Value]:
    """Values that something stored depends on."""
    needed = {value for value, _ in body.stores} | set(body.values)
    for node in reversed(body.nodes):
        if node.result in needed:
            needed |= set(node.operands)
    return needed


def _row_invariant(body: Body, space: Space, needed: set[Value]) -> set[Value]:
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


def lanes_for(columns: int, widest: int) -> int:
    """The lane count that takes fewest vectors for a row; a cut-off vector counts a bit more."""
    widths = [lanes for lanes in (16, 8, 4) if lanes <= widest]

    def cost(lanes: int) -> float:
        return -(-columns // lanes) + (0.75 if columns % lanes else 0.0)

    return min(widths, key=lambda lanes: (cost(lanes), -lanes))


def by_columns(space: Space, threads: int) -> bool:
    """Whether threads should share the columns, because there are too few rows."""
    return space.outers * space.rows < 4 * threads and space.columns >= 64
