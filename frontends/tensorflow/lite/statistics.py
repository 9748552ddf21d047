"""Constants that an input is normalized by before the first layer: they do not train."""

import warnings
from collections.abc import Sequence

from pockengine.frontends.tensorflow.lite.file import LiteGraph, LiteOperator

ARITHMETIC = ("ADD", "DIV", "MUL", "SUB")
MOVES = ("CAST", "DEQUANTIZE", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE")
LAYERS = ("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL")
MOST_NAMED = 5


def bare_tensors(graph: LiteGraph) -> set[int]:
    """Return what arithmetic with constants makes of the inputs, where a layer follows."""
    if not any(operator.name in LAYERS for operator in graph.operators):
        return set()  # arithmetic is all there is
    bare = set(graph.inputs)
    for operator in graph.operators:
        given = [number for number in operator.inputs if number >= 0]
        known = all(n in bare or graph.tensors[n].data is not None for n in given)
        if operator.name in (*ARITHMETIC, *MOVES) and known and bare.intersection(given):
            bare.update(operator.outputs)
    return bare


def is_statistic(operator: LiteOperator | None, number: int, bare: set[int], size: int) -> bool:
    """Whether an operator normalizes an input by this constant, of so many long dimensions."""
    if operator is None or operator.name not in ARITHMETIC or size > 1:
        return False
    others = [other for other in operator.inputs if other != number]
    return bool(others) and bare.issuperset(others)


def tell_statistics(name: str, found: Sequence[str]) -> None:
    """Say in one line what does not train."""
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        warnings.warn(
            f"{name}: {', '.join(found[:MOST_NAMED])}{more} do not train: statistics that an "
            "input is normalized by",
            stacklevel=6,
        )
