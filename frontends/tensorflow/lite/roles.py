"""Decide which weights of a TFLite file train: its constants have no declared roles."""

import warnings
from collections.abc import Mapping, Sequence

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow.lite.file import FileOperator, LiteGraph

ARITHMETIC = ("ADD", "DIV", "MUL", "SUB")
MOVES = ("CAST", "DEQUANTIZE", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE")
LAYERS = ("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL")
STATISTICS = "statistics that an input is normalized by"
ZEROS = "biases of zeros, which converters add to layers that have none"
MOST_NAMED = 5


def bare_tensors(graph: LiteGraph) -> set[int]:
    """Return the values that arithmetic with constants computes from the inputs before a layer."""
    if not any(operator.name in LAYERS for operator in graph.operators):
        return set()  # arithmetic is all there is
    bare = set(graph.inputs)
    for operator in graph.operators:
        sources = [number for number in operator.inputs if number >= 0]
        known = all(n in bare or graph.tensors[n].data is not None for n in sources)
        if operator.name in (*ARITHMETIC, *MOVES) and known and bare.intersection(sources):
            bare.update(operator.outputs)
    return bare


def is_statistic(operator: FileOperator | None, number: int, bare: set[int], size: int) -> bool:
    """Whether an operator normalizes an input by this constant, of this many long dimensions."""
    if operator is None or operator.name not in ARITHMETIC or size > 1:
        return False
    others = [other for other in operator.inputs if other != number]
    return bool(others) and bare.issuperset(others)


class Roles:
    """Trained weights of a file: the user's choice, else all but statistics and biases of zeros."""

    def __init__(self, chosen: Mapping[str, bool]) -> None:
        """Take the user's choices by name."""
        self.chosen = chosen
        self.frozen: dict[str, list[str]] = {}

    def trains(self, name: str, reason: str) -> bool:
        """Whether a weight trains, which does not for a reason, if any."""
        if name in self.chosen:
            return self.chosen[name]
        if reason:
            self.frozen.setdefault(reason, []).append(name)
        return not reason

    def check(self, graph: Graph) -> None:
        """Raise ImportModelError for a choice that is not a weight of the model."""
        unknown = [name for name in self.chosen if name not in graph.params]
        if unknown:
            raise ImportModelError(
                f"{unknown[0]!r} (trainable=, --trainable, --frozen) is no weight of "
                f"{graph.name}; it has "
                f"{listed(list(graph.params)) or 'none'}"
            )

    def tell(self, graph: Graph) -> None:
        """Summarise in one line the weights that do not train, and how to change it."""
        read = {why: [n for n in self.frozen[why] if n in graph.params] for why in self.frozen}
        parts = [f"{listed(names)} do not train: {why}" for why, names in read.items() if names]
        if parts:
            count = sum(param.trainable for param in graph.params.values())
            warnings.warn(
                f"{graph.name}: {count} weights train; {'; '.join(parts)}. To change it, say "
                "trainable={name: True or False}, or --trainable or --frozen NAME",
                stacklevel=6,
            )


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
