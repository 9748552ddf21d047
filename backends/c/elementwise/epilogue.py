"""Epilogues of anchors (matmul, convolution): the C function that stores results.

A fusion's body holds one anchor, elementwise nodes after it, and in front of a product possibly the
decoding of its weight, which the product's own template does. The anchor's template computes sums
in registers and hands each vector of them to `store(io, acc, row, column, lanes)`, written here: it
loads the other operands, evaluates the elementwise nodes, and stores every result. `row` counts the
rows of the anchor's result seen as a matrix whose columns are its last dimension; `lanes` is the
number of valid lanes. `io` is a struct of the pointers that the function needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.expression import check_expression, emit_nodes
from pockengine.backends.native.kernel import SYMBOL, Parameter, read, write
from pockengine.backends.native.numbers import FIELDS, VALUES, whole
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code, Text, fill, indented, joined
from pockengine.compiler.ir import BOOL, F32, Graph, Node, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.anchors import anchors_of
from pockengine.devices.schema import Device
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Fused:
    """A node as an anchor with the elementwise nodes after it; a bare anchor has no body.

    `decode` is the node that decodes its weight from what is stored.
    """

    anchor: Node
    after: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    body: Graph | None
    decode: Node | None = None

    @property
    def operands(self) -> tuple[Value, ...]:
        """What the anchor reads; in place of a stored weight, what it is decoded from."""
        if self.decode is None:
            return self.anchor.operands
        weight, parts = self.decode.result, self.decode.operands
        read = (parts if value is weight else (value,) for value in self.anchor.operands)
        return tuple(value for values in read for value in values)

    @property
    def plain(self) -> bool:
        """Whether the anchor's result is the kernel's only result."""
        return not self.after and len(self.outputs) == 1


def split_fusion(node: Node) -> Fused:
    """Find the anchor of a node; CompileError if C cannot express the fusion."""
    if node.op != "fusion":
        return Fused(node, (), node.operands, outputs=node.results, body=None)
    body = node.attrs["body"]
    anchor, decode = _anchor_of(node, body)
    after = tuple(inner for inner in body.nodes if inner not in (anchor, decode))
    for inner in after:
        check_expression(inner)
    inputs, outputs = tuple(body.inputs), tuple(body.outputs.values())
    return Fused(anchor, after, inputs, outputs=outputs, body=body, decode=decode)


@dataclass(frozen=True)
class Anchored:
    """A node seen as an anchor with its epilogue, in C.

    `symbol` prefixes the names of the kernel's helpers. `names` are the C names of the anchor's
    operands; `parameters` those of the kernel; `plain` is the name of the single result if the
    epilogue is empty, else None. `store_pair` is `store` for two vectors of a row, empty unless
    the CPU moves pairs. `numbers` are operands of one element, which `io` holds by value.
    """

    symbol: str
    anchor: Node
    names: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    store: Text
    store_pair: Text
    numbers: tuple[str, ...]
    plain: str | None
    title: str
    streams: bool

    @property
    def io(self) -> Text:
        """The statement that declares `io` in the kernel's body."""
        pointers = [f".{p.name} = {p.name}" for p in self.parameters]
        fields = ", ".join([*pointers, *(f".only_{name} = *{name}" for name in self.numbers)])
        return fill("const {}_io io = {{{}{}}};", self.symbol, fields, VALUES)

    @property
    def end(self) -> list[str]:
        """The statement that ends the kernel's body, if one is needed."""
        return ["pe_stream_end();"] if self.streams else []


def open_fusion(
    node: Node, device: Device, symbol: str = SYMBOL, by_integers: bool = False
) -> Anchored:
    """Emit the code around the sums of a bare anchor, or of a fusion around one.

    `by_integers`: for sums in vectors of integers alone.
    """
    fused = split_fusion(node)
    anchor, inputs = fused.anchor, fused.inputs
    names = _input_names(fused)
    updated = [names[inputs[index]] for index in node.attrs.get("writes", ())]
    results = [f"y{index}" for index in range(len(node.results))]
    places = dict(zip(fused.outputs, [*results, *updated], strict=True))
    parameters = _reads(inputs, names, updated)
    parameters += [write(name, value) for name, value in zip(results, node.results, strict=True)]
    stored = fused.outputs[: len(results)]
    streamed = frozenset(value for value in stored if _is_streamed(value, fused, device))
    is_moved = machine_of(device).paired and anchor.result.dtype is F32 and not by_integers
    is_paired = is_moved and bool(fused.after)
    numbers = _numbers(names, updated) if is_paired else ()
    epilogue = _Epilogue(fused, names, places, streamed, numbers=numbers, by_integers=by_integers)
    before = [*_ahead(anchor, names, device), *(epilogue.move() if is_moved else [])]
    return Anchored(
        symbol=symbol,
        anchor=anchor,
        names=tuple(names[operand] for operand in fused.operands),
        parameters=tuple(parameters),
        store=joined("\n", [_io_struct(parameters, numbers), *before, epilogue.function("store")]),
        store_pair=epilogue.pair() if is_paired else joined("", []),
        numbers=numbers,
        plain="y0" if fused.plain else None,
        title="_".join([anchor.op, *dict.fromkeys(inner.op for inner in fused.after)][:4]),
        streams=bool(streamed),
    )


def _is_streamed(value: Value, fused: Fused, device: Device) -> bool:
    """Whether a result bypasses the caches.

    It does if it is larger than half of the last-level cache, so little of it would be left when it
    is read, and if its vectors are whole aligned cache lines. Not if it may overwrite an operand of
    the epilogue, whose lines are in the cache by then: on Emerald Rapids such kernels take 1.3 to
    1.5 times as long.
    """
    others = (operand for operand in fused.inputs if operand not in fused.operands)
    if any(operand.type == value.type for operand in others):
        return False
    cpu, lanes = device.cpu, device.cpu.vector_bytes // 4
    last = (cpu.l3_bytes or cpu.l2_bytes) // 2
    lines = cpu.vector_bytes == cpu.line_bytes and value.shape[-1] % lanes == 0
    return value.dtype is F32 and value.type.nbytes > last and lines


def _anchor_of(node: Node, body: Graph) -> tuple[Node, Node | None]:
    """Return the anchor, and the node that decodes its weight."""
    anchors = anchors_of(body.nodes)
    if len(anchors) != 1:
        raise CompileError(f"{node}: a fused kernel needs one anchor, not {len(anchors)}")
    anchor = anchors[0]
    before = [operand.node for operand in anchor.operands if operand not in body.inputs]
    decode = before[0] if before else None
    if len(before) > 1 or (decode is not None and not lookup(decode.op).decodes):
        raise CompileError(f"{node}: the C backend fuses only a decoding before {anchor.op}")
    return anchor, decode


def _input_names(fused: Fused) -> dict[Value, str]:
    """What the anchor reads is named as in the ops, the others e0, e1, ..."""
    names: dict[Value, str] = {}
    for node in [fused.anchor, *([fused.decode] if fused.decode else [])]:
        for index, operand in enumerate(node.operands):
            name = lookup(node.op).operand_name(index)
            if operand in fused.inputs:
                names.setdefault(operand, "weights" if name == "w" else name)  # w is the worker
    extra = [value for value in fused.inputs if value not in names]
    names.update((value, f"e{index}") for index, value in enumerate(extra))
    return names


def _reads(
    inputs: Sequence[Value], names: dict[Value, str], updated: Sequence[str]
) -> list[Parameter]:
    """The kernel's operands; a bare anchor with a repeated operand is passed it twice."""
    first = {value: place for place, value in reversed([*enumerate(inputs)])}
    return [
        (write if names[value] in updated else read)(
            names[value] if first[value] == place else f"again{place}", value
        )
        for place, value in enumerate(inputs)
    ]


def _numbers(names: dict[Value, str], updated: Sequence[str]) -> tuple[str, ...]:
    """Operands of one element, such as a learning rate: through a pointer they would be loaded
    again after each store.
    """
    single = [name for value, name in names.items() if value.type.size == 1 and value.dtype is F32]
    return tuple(name for name in single if name not in updated)


def _io_struct(parameters: Sequence[Parameter], numbers: Sequence[str]) -> Text:
    pointers = [f"    {parameter};" for parameter in parameters]
    fields = "\n".join([*pointers, *(f"    float only_{name};" for name in numbers)])
    return fill("typedef struct {{\n{}\n{}}} PE_FN(io);\n", fields, FIELDS)


def _ahead(anchor: Node, names: dict[Value, str], device: Device) -> list[Code]:
    """The function that prefetches the epilogue's operands before the sums, one line per vector."""
    shape = anchor.result.shape
    large = [
        name
        for value, name in names.items()
        if value.shape == shape and value not in anchor.operands and value.dtype is F32
    ]
    if not large or device.cpu.vector_bytes < device.cpu.line_bytes:
        return []
    fetch, columns = "    __builtin_prefetch(io->{} + row * {} + column);", whole(shape[-1])
    lines = [fill(fetch, name, columns) for name in large]
    head = (
        "PE_INLINE void PE_FN(ahead)(const PE_FN(io) *io, const ptrdiff_t row, const int column) {"
    )
    return ["#define PE_AHEAD 1", head, *lines, "}"]


@dataclass(frozen=True)
class _Epilogue:
    """The parts of the functions that store results."""

    fused: Fused
    names: dict[Value, str]
    places: dict[Value, str]
    streamed: frozenset[Value]
    numbers: tuple[str, ...]
    by_integers: bool

    def function(self, name: str) -> Text:
        """The function that stores a vector of the width that PE_VL has where it is defined."""
        kind = c_scalar(self.fused.anchor.result.dtype).vector
        head = (
            f"PE_INLINE void PE_FN({name})(const PE_FN(io) *io, const {kind} acc,"
            " const ptrdiff_t row,"
        )
        parameters = "                            const int column, const int lanes) {"
        unused = "    (void)io, (void)row, (void)column, (void)lanes;"
        return joined(
            "\n", [head, parameters, unused, joined("\n", indented(self._lines())), "}\n"]
        )

    def move(self) -> list[Code]:
        """The function that moves pointers to a row and column, from which `store` then counts.

        Their offsets to later rows are constants, which loads and stores of pairs contain. Empty if
        an operand is read with other strides.
        """
        columns = whole(self.fused.anchor.result.shape[-1])
        steps: dict[str, Code] = {
            name: fill("row * {} + column", columns) for name in self.places.values()
        }
        for value, name in self._loaded():
            step = self._step(value)
            if step is None:
                return []
            steps.setdefault(name, step)
        moved = [fill("    io->{} += {};", name, step) for name, step in steps.items() if step]
        hidden = [f"    PE_HIDE(io->{name});" for name, step in steps.items() if step]
        head = "PE_INLINE void PE_FN(move)(PE_FN(io) *io, const ptrdiff_t row, const int column) {"
        unused = "    (void)row, (void)column;"
        return ["#define PE_MOVES 1", head, unused, *moved, *hidden, "}\n"]

    def _loaded(self) -> list[tuple[Value, str]]:
        """What the elementwise nodes read from memory."""
        used = {operand for inner in self.fused.after for operand in inner.operands}
        named = self.names.items()
        return [
            (value, name) for value, name in named if value in used and name not in self.numbers
        ]

    def _step(self, value: Value) -> Code | None:
        """The offset of a row and column in an operand; None if it is not linear in the row."""
        shape = self.fused.anchor.result.shape
        offset = row_offset(value.shape, shape)
        if offset != "0" and value.shape[:-1] != shape[:-1]:
            return None
        if not value.shape or value.shape[-1] == 1 != shape[-1]:
            return "" if offset == "0" else offset
        return "column" if offset == "0" else fill("{} + column", offset)

    def pair(self) -> Text:
        """The function that stores two vectors of a row."""
        return joined("\n", [_PAIR_BEGIN, self.function("store_pair"), _PAIR_END])

    def _lines(self) -> list[Code]:
        anchor, nodes = self.fused.anchor, self.fused.after
        variables: dict[Value, Code] = {anchor.result: "acc"}
        lines: list[Code] = []
        used = {operand for inner in nodes for operand in inner.operands}
        for value, name in self.names.items():
            if value in used:
                lines.append(self._load(value, name))
                variables[value] = f"v_{name}"
        constants = self.fused.body.constants if self.fused.body else {}
        lines += emit_nodes(nodes, variables, constants, by_integers=self.by_integers)
        return [*lines, *(self._stored(value, variables) for value in self.places)]

    def _stored(self, value: Value, variables: dict[Value, Code]) -> Text:
        """The statement that stores a result."""
        anchor = self.fused.anchor
        if value.type.size != anchor.result.type.size:
            raise CompileError(
                f"{anchor}: its epilogue gives {value!r}, not one value for each sum"
            )
        if value not in variables:  # a constant or an operand is returned unchanged
            raise CompileError(f"{anchor}: its fusion returns {value!r}, which it does not compute")
        columns = whole(anchor.result.shape[-1])
        at = fill("io->{} + row * {} + column", self.places[value], columns)
        suffix = c_scalar(value.dtype).suffix
        kind = "pe_stream_part" if value in self.streamed else f"pe_store_part{suffix}"
        return fill("{}({}, {}, lanes);", kind, at, variables[value])

    def _load(self, value: Value, name: str) -> Text:
        """Declare v_<name>: the part of an operand for this vector of sums, broadcast."""
        shape = self.fused.anchor.result.shape
        kind, suffix = c_scalar(value.dtype).vector, c_scalar(value.dtype).suffix
        offset = row_offset(value.shape, shape)
        if name in self.numbers:
            return fill("const {} v_{} = pe_splat(io->only_{});", kind, name, name)
        if not value.shape or value.shape[-1] == 1 != shape[-1]:
            splat = "_i(-" if value.dtype is BOOL else f"{suffix}("
            loaded = fill("pe_splat{}io->{}[{}])", splat, name, offset)
        else:
            begin = "" if offset == "0" else offset + " + "
            loaded = fill("pe_load_part{}(io->{} + {}column, lanes)", suffix, name, begin)
        return fill("const {} v_{} = {};", kind, name, loaded)


_PAIR_BEGIN = """#define PE_STORE_PAIRS 1
#pragma push_macro("PE_VL")
#undef PE_VL
#define PE_VL 8"""
_PAIR_END = '#pragma pop_macro("PE_VL")\n'


def row_offset(operand: Sequence[int], result: Sequence[int]) -> Code:
    """The C expression, of `row`, for the offset of the operand's row that belongs to a result row.

    The operand's shape broadcasts to the result's; rows are all dimensions but the last.
    """
    pitch = operand[-1] if operand else 1
    leading = [1] * (len(result) - len(operand)) + list(operand[:-1] if operand else ())
    leading = leading[: len(result) - 1]
    if tuple(leading) == tuple(result[:-1]):
        return fill("row * {}", whole(pitch)) if math.prod(leading) > 1 else "0"
    terms = []
    for index, size in enumerate(leading):
        if size == 1:
            continue
        inner = math.prod(result[index + 1 : -1])
        step = pitch * math.prod(leading[index + 1 :])
        at: Code = fill("row / {}", whole(inner)) if inner > 1 else "row"
        if math.prod(result[:index]) > 1:
            at = fill("{} % {}", at, whole(size))
        terms.append(fill("{} * {}", at, whole(step)))
    return joined(" + ", terms) if terms else "0"
