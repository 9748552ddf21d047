"""Optimiser states in fewer bits: bf16, or 8 bits in blocks (`ir/state_blocks.py`).

Updates compute in f32 all the same. A second moment loses a thousandth of itself at a step, which
bf16's 8 bits cannot say: rounded to the nearest it would never fall. So what is written is rounded
up or down by chance, in proportion to how near either is; chance is a hash of the bits that stay
and of the step's seed. Blocks of 8 bits need none: their scale is f32, and falls with the block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents, Filled
from pockengine.compiler.ir.graph import Graph, Node, Param, ParamKind, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.state_blocks import code_of, scales_shape
from pockengine.compiler.ir.types import F32, I32, DType, TensorType, f32
from pockengine.compiler.ops.random import MIXER
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import PART, updated_type
from pockengine.compiler.optim.base import SEED, STATE_PREFIX, run_time_scalar
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.errors import CompileError

BITS_8 = "8bit"
SMALLEST = 4096
"""Elements from which on a state is stored small, as 8-bit optimisers have it."""

_UPPER, _LOW = 0xFFFF0000, 0xFFFF
"""The bits of an f32 that bf16 keeps, and those that it lacks."""


def store_states(graph: Graph, dtype: str) -> None:
    """Keep the f32 states of each update as `dtype`, bf16 or 8bit.

    Requires: updates appended, none fused. Leaves: states below `SMALLEST` elements, of another
    shape than what trains, or that more than their update reads, as they were.
    """
    if dtype not in (DType.BF16.value, BITS_8):
        raise CompileError(f"states are stored as bf16 or {BITS_8}, not {dtype}")
    users = graph.users()
    store = _store_blocks if dtype == BITS_8 else _store_rounded

    def rule(g: Builder, node: Node) -> tuple[Value, ...] | None:
        places = _states(graph, node, users)
        if not places or (dtype == BITS_8 and not _is_plain(node)):
            return None
        store(g, node, places)
        return ()

    rewrite(graph, rule)


def _states(graph: Graph, node: Node, users: Mapping[Value, Sequence[Node]]) -> list[int]:
    """Places of an update's states that are large, f32, and its own."""
    if node.op not in FORMULAS or "axis" not in node.attrs:
        return []
    part = TensorType(F32, updated_type(node.operands[0].type, node.attrs).shape)
    params = {place: graph.param_of(node.operands[place]) for place in written_operands(node)[1:]}
    return [
        place
        for place, param in params.items()
        if param is not None
        and param.kind is ParamKind.OPTIMIZER
        and param.value.type == part
        and part.size >= SMALLEST
        and len(users[param.value]) == 1
    ]


def _is_plain(node: Node) -> bool:
    """Whether all that an update reads is a scalar, or as large as what it writes."""
    part = updated_type(node.operands[0].type, node.attrs).shape
    return all(value.shape in ((), part) for value in node.operands[1:])


def _store_rounded(g: Builder, node: Node, places: Sequence[int]) -> None:
    """Keep states as bf16, rounded by chance."""
    seed = run_time_scalar(g, SEED, I32)
    operands = [*node.operands, seed]
    for place in places:
        kept = TensorType(DType.BF16, operands[place].shape)
        operands[place] = _replaced(g, operands[place], Filled(kept, _start(g, operands[place])))
    current = [value.type for value in operands]

    def body(g: Builder, inner: list[Value]) -> list[Value]:
        wide = [
            g.cast(value, dtype=F32.value) if place in places else value
            for place, value in enumerate(inner)
        ]
        new = FORMULAS[node.op](g, node, wide[:-1])
        written = written_operands(node)
        return [
            _rounded(g, value, inner[-1]) if place in places else value
            for place, value in zip(written, new, strict=True)
        ]

    attrs = {"body": _body(node, current, body), "writes": written_operands(node)}
    g.emit("elementwise_update", *operands, **attrs, **_part(node))


def _rounded(g: Builder, value: Value, seed: Value) -> Value:
    """The number as bf16, up or down by chance; what is no number stays none."""

    def number(of: int) -> Value:
        return g.scalar(of - (of >> 31 << 32), I32)

    bits = g.float_bits(value)
    upper = g.bit_and(bits, number(_UPPER))
    chance = g.bit_xor(upper, seed)  # of these alone: what rounding differs by changes no chance
    for shift, factor in MIXER:
        moved = g.bit_and(g.shift_right(chance, number(shift)), number((1 << (32 - shift)) - 1))
        chance = g.bit_xor(chance, moved)
        chance = chance if factor == 1 else g.mul(chance, number(factor))
    raised = g.add(bits, g.bit_and(chance, number(_LOW)))
    cut = g.bits_float(g.bit_and(raised, number(_UPPER)))
    return g.cast(g.where(g.eq(value, value), cut, value), dtype=DType.BF16.value)


def _store_blocks(g: Builder, node: Node, places: Sequence[int]) -> None:
    """Keep states as codes of 8 bits with their scales."""
    written, count = written_operands(node), len(node.operands)
    shapes = [scales_shape(node.operands[place].shape) for place in places]
    types = [value.type for value in node.operands] + [f32(*shape) for shape in shapes]
    body = _body(node, types, lambda g, inner: FORMULAS[node.op](g, node, inner[:count]))
    signs = {place: not _stays_above(body, place, written.index(place)) for place in places}
    operands, scales = list(node.operands), []
    for place, shape in zip(places, shapes, strict=True):
        state, start = operands[place], _start(g, operands[place])
        code = code_of(1.0 if start else 0.0, signs[place])
        kept = Filled(TensorType(DType.U8, state.shape), code)
        operands[place] = _replaced(g, state, kept)
        scales.append(_scales(g, state.name, Filled(f32(*shape), start)))
    last = range(count, count + len(scales))
    g.emit(
        "blockwise_update",
        *operands,
        *scales,
        body=body,
        writes=(*written, *last),
        signed=tuple(place for place in places if signs[place]),
        unsigned=tuple(place for place in places if not signs[place]),
        **_part(node),
    )


def _start(g: Builder, state: Value) -> float:
    contents = g.graph.params[state.name].contents
    assert isinstance(contents, Filled)  # as optimisers declare them
    return contents.number


def _scales(g: Builder, state: str, contents: Contents) -> Value:
    """Declare the scales of a state beside it: optimizer.first_scales.NAME."""
    kind, _, rest = state.removeprefix(STATE_PREFIX).partition(".")
    name = f"{STATE_PREFIX}{kind}_scales.{rest}"
    return g.param(name, contents, trainable=False, kind=ParamKind.OPTIMIZER)


def _replaced(g: Builder, state: Value, contents: Contents) -> Value:
    """Let a param of another type take a state's place, under its name."""
    value = Value(state.name, contents.type)
    param: Param = g.graph.params[state.name]
    g.graph.params[state.name] = replace(param, value=value, contents=contents)
    return value


def _body(
    node: Node, types: Sequence[TensorType], build: Callable[[Builder, list[Value]], list[Value]]
) -> Graph:
    """Return a graph from the part of a param and other operands to what an update writes."""
    body = Graph("update")
    g = Builder(body)
    seen = [updated_type(types[0], node.attrs), *types[1:]]
    inner = [g.input(f"x{place}", type_) for place, type_ in enumerate(seen)]
    for place, value in enumerate(build(g, inner)):
        g.output(f"new_{place}", value)
    return body


def _part(node: Node) -> dict[str, object]:
    return {name: node.attrs[name] for name in PART}


_Sign = Callable[[list[bool]], bool]
_KNOWN: Mapping[str, _Sign] = {
    "square": lambda signs: True,
    "abs": lambda signs: True,
    "add": all,
    "mul": all,
    "div": all,
    "sqrt": all,
    "minimum": all,
    "maximum": any,
}
"""When a result is 0 or more, by whether each operand is; of other ops nothing is known."""


def _stays_above(body: Graph, place: int, output: int) -> bool:
    """Whether a state of 0 or more stays so, whatever the other operands are."""
    above = {value: bool((data >= 0).all()) for value, data in body.constants.items()}
    above[body.inputs[place]] = True
    for node in body.nodes:
        signs = [above.get(value, False) for value in node.operands]
        known = _KNOWN.get(node.op)
        above[node.result] = known is not None and known(signs)
    return above.get(list(body.outputs.values())[output], False)
