"""Decide which weights of a TFLite file train: its constants have no declared roles."""

from pockengine.frontends.tensorflow.lite.file import FileOperator, LiteGraph

ARITHMETIC = ("ADD", "DIV", "MUL", "SUB")
MOVES = ("CAST", "DEQUANTIZE", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE")
LAYERS = ("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL")
STATISTICS = "statistics that an input is normalized by"
ZEROS = "biases of zeros, which converters add to layers that have none"


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
