"""An elementwise update with 8-bit states: codes in blocks; see `ir/state_blocks.py`.

Operands are those of an `elementwise_update`, then a tensor of scales for each state at the
positions `signed` and `unsigned`, in ascending order. The body sees such a state as f32 and ignores
the scales. Its outputs are the new contents of the operands at `writes`, except the scales.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pockengine.compiler.ir.scalars import COMPUTED, DType
from pockengine.compiler.ir.state_blocks import decode, encode, scales_shape
from pockengine.compiler.ir.types import F32, TensorType, f32
from pockengine.compiler.ops.elementwise_update import check_body
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.compiler.ops.update import PART, updated_part, updated_type
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.graph import Graph

Attrs = Mapping[str, Any]


def coded_places(attrs: Attrs) -> dict[int, bool]:
    """Return the positions of the 8-bit states, ascending, and whether each is signed."""
    signs = {**dict.fromkeys(attrs["signed"], True), **dict.fromkeys(attrs["unsigned"], False)}
    return dict(sorted(signs.items()))


def _infer(types: Types, attrs: Attrs) -> Types:
    part, places = updated_type(types[0], attrs), coded_places(attrs)
    count = len(types) - len(places)
    seen = [part, *types[1:]]
    if not places or min(places) < 2 or max(places) >= count:
        raise GraphError("a blockwise_update names no states, or other operands than it has")
    for place, scales in zip(places, types[count:], strict=True):
        codes = TensorType(DType.U8, part.shape)
        if (types[place], scales) != (codes, f32(*scales_shape(part.shape))):
            raise GraphError(f"a state of {part} in 8 bits is {codes}, and f32 scales of blocks")
        seen[place] = TensorType(F32, part.shape)
    if tuple(attrs["writes"][len(attrs["body"].outputs) :]) != tuple(range(count, len(types))):
        raise GraphError("a blockwise_update writes its scales, which stand last")
    check_body("blockwise_update", attrs["body"], seen, attrs["writes"][: -len(places)])
    return ()


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    from pockengine.compiler.ir.evaluate import run  # the evaluator needs the registry first

    body: Graph = attrs["body"]
    places, part = coded_places(attrs), updated_part(attrs)
    count = len(arrays) - len(places)
    param, operands = arrays[0].copy(), list(arrays)
    operands[0] = param[part]
    for (place, signed), scales in zip(places.items(), arrays[count:], strict=True):
        operands[place] = decode(arrays[place], scales, signed)
    inputs = {value.name: array for value, array in zip(body.inputs, operands, strict=True)}
    new = dict(zip(attrs["writes"], run(body, inputs).values(), strict=False))
    param[part] = new.pop(0)
    coded = {place: encode(new[place], signed) for place, signed in places.items()}
    states = [coded[place][0] if place in coded else state for place, state in new.items()]
    return (param, *states, *(scales for _, scales in coded.values()))


define(
    "blockwise_update",
    "param grad operands",
    variadic=True,
    optional=1,
    attrs={"body": REQUIRED, "writes": REQUIRED, "signed": (), "unsigned": (), **PART},
    infer=_infer,
    eval=_eval,
    storage=frozenset(DType) - set(COMPUTED),  # its body defines the computation
    writes=(0,),
    pointwise=True,
)
