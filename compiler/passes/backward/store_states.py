"""Store optimizer states in fewer bits: bf16, or 8 bits in blocks (`ir/state_blocks.py`).

Updates compute in f32. A second moment decays by a thousandth per step, which is below bf16's 8
significant bits: rounded to nearest it would never decay. So bf16 states are stochastically rounded
(`small_updates.py`). 8-bit blocks need no such rounding: their scale is f32 and decays with the
block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents, Filled
from pockengine.compiler.ir.graph import Graph, Node, ParamKind, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.state_blocks import code_of, scales_shape
from pockengine.compiler.ir.types import F32, DType, TensorType, f32
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import updated_type
from pockengine.compiler.optim.base import STATE_PREFIX
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.passes.backward.small_updates import (
    part_of,
    replaced,
    rounded_update,
    update_body,
)
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.option_types import OneOf

BITS_8 = "8bit"
TYPES = (DType.BF16.value, BITS_8)
SMALLEST = 4096
"""Minimum number of elements of a state to store in fewer bits, as in 8-bit optimizers."""


@dataclass(frozen=True)
class StoreStates(Pass):
    """Store the f32 states of each update as `dtype`, bf16 or 8bit.

    Requires: updates appended, none fused. Leaves unchanged: states below `SMALLEST` elements,
    states of another shape than the trained part, and states with other readers than their update.
    """

    dtype: Annotated[str, OneOf(TYPES)]

    def run(self, graph: Graph) -> None:
        users = graph.users()
        store = _store_blocks if self.dtype == BITS_8 else _store_rounded

        def rule(g: Builder, node: Node) -> tuple[Value, ...] | None:
            places = _states(graph, node, users)
            if not places or (self.dtype == BITS_8 and not _is_plain(node)):
                return None
            store(g, node, places)
            return ()

        rewrite(graph, rule)


def _states(graph: Graph, node: Node, users: Mapping[Value, Sequence[Node]]) -> list[int]:
    """Positions of an update's states that are large, f32, and read by it alone."""
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
    """Whether all operands of an update are scalars, or of the written shape."""
    part = updated_type(node.operands[0].type, node.attrs).shape
    return all(value.shape in ((), part) for value in node.operands[1:])


def _store_rounded(g: Builder, node: Node, places: Sequence[int]) -> None:
    """Store states as bf16, stochastically rounded."""
    small = {}
    for place in places:
        state = node.operands[place]
        initial = Filled(TensorType(DType.BF16, state.shape), _start(g, state))
        small[place] = replaced(g.graph, state, initial)
    rounded_update(g, node, small)


def _store_blocks(g: Builder, node: Node, places: Sequence[int]) -> None:
    """Store states as 8-bit codes with their scales."""
    written, count = written_operands(node), len(node.operands)
    shapes = [scales_shape(node.operands[place].shape) for place in places]
    types = [value.type for value in node.operands] + [f32(*shape) for shape in shapes]
    body = update_body(node, types, lambda g, inner: FORMULAS[node.op](g, node, inner[:count]))
    signs = {place: not _stays_above(body, place, written.index(place)) for place in places}
    operands, scales = list(node.operands), []
    for place, shape in zip(places, shapes, strict=True):
        state, start = operands[place], _start(g, operands[place])
        code = code_of(1.0 if start else 0.0, signs[place])
        initial = Filled(TensorType(DType.U8, state.shape), code)
        operands[place] = replaced(g.graph, state, initial)
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
        **part_of(node),
    )


def _start(g: Builder, state: Value) -> float:
    contents = g.graph.params[state.name].contents
    assert isinstance(contents, Filled)  # as optimizers declare them
    return contents.number


def _scales(g: Builder, state: str, contents: Contents) -> Value:
    """Declare a state's scales: optimizer.first_scales.NAME."""
    kind, _, param = state.removeprefix(STATE_PREFIX).partition(".")
    name = f"{STATE_PREFIX}{kind}_scales.{param}"
    return g.param(name, contents, trainable=False, kind=ParamKind.OPTIMIZER)


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
"""Whether an op's result is nonnegative, from whether each operand is; other ops: unknown."""


def _stays_above(body: Graph, place: int, output: int) -> bool:
    """Whether a nonnegative state stays nonnegative, whatever the other operands are."""
    above = {value: bool((data >= 0).all()) for value, data in body.constants.items()}
    above[body.inputs[place]] = True
    for node in body.nodes:
        signs = [above.get(value, False) for value in node.operands]
        known = _KNOWN.get(node.op)
        above[node.result] = known is not None and known(signs)
    return above.get(list(body.outputs.values())[output], False)
