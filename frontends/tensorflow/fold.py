"""Compute operators whose inputs are all known: the arithmetic on shapes that tracing leaves.

TensorFlow's own kernels do it, for a list of operators without effects whose results can be bounded
before they are computed.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.execute import execute

from pockengine.frontends.emit.nn import Unsupported

MAX_ELEMENTS = 2**24
"""Of the inputs, and of the outputs: enough for the mask of a sequence of 4096."""

Arrays = Sequence[np.ndarray]


def _inputs(arrays: Arrays) -> int:
    return sum(array.size for array in arrays)


def _broadcast(arrays: Arrays) -> int:
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def _gathered(arrays: Arrays) -> int:
    return math.prod(max(array.size, 1) for array in arrays[:2])


def _filled(arrays: Arrays) -> int:
    return math.prod(int(size) for size in arrays[0])


def _broadcast_to(arrays: Arrays) -> int:
    return math.prod(int(size) for size in arrays[1])


def _tiled(arrays: Arrays) -> int:
    return arrays[0].size * math.prod(int(count) for count in arrays[1])


def _ranged(arrays: Arrays) -> int:
    start, limit, step = (float(array) for array in arrays)
    return math.ceil((limit - start) / step)


# Operators that give back at most what they take.
_NARROW = """
    Abs All Any ArgMax ArgMin Cast Ceil ConcatV2 Cumsum Erf Exp ExpandDims Floor Identity IdentityN
    InvertPermutation Log LogicalNot MatrixBandPart Max Mean Min Neg OnesLike Pack Prod Rank
    Reciprocal Reshape ReverseV2 Rint Round Rsqrt Shape ShapeN Sign Sin Cos Size Slice Snapshot
    Split SplitV Sqrt Square Squeeze StopGradient StridedSlice Sum Tanh Transpose Unpack ZerosLike
"""
_BROADCASTING = """
    Add AddV2 BroadcastArgs Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual
    LogicalAnd LogicalOr Maximum Minimum Mod Mul NotEqual Pow RealDiv Select SelectV2
    SquaredDifference Sub TruncateDiv TruncateMod
"""

BOUNDS: dict[str, Callable[[Arrays], int]] = {
    **dict.fromkeys(_NARROW.split(), _inputs),
    **dict.fromkeys(_BROADCASTING.split(), _broadcast),
    "BroadcastTo": _broadcast_to,
    "Fill": _filled,
    "GatherV2": _gathered,
    "Range": _ranged,
    "Tile": _tiled,
}
"""Operator -> the largest number of elements that it can give."""


def fold(op: Any, arrays: Arrays) -> list[np.ndarray]:
    """Compute an operator; Unsupported when it cannot be, or gives too much."""
    try:
        bound = max(_inputs(arrays), BOUNDS[op.type](arrays))
        if bound > MAX_ELEMENTS:
            raise Unsupported(f"a constant of {bound} elements; make it an input of the model")
        inputs = [
            tf.constant(array, dtype=source.dtype)
            for array, source in zip(arrays, op.inputs, strict=True)
        ]
        results = execute(
            op.type, len(op.outputs), inputs, tuple(_attributes(op)), context.context()
        )
    except Unsupported:
        raise
    except Exception as error:  # the kernels raise whatever they like on nonsense
        raise Unsupported(f"its constant result cannot be computed: {error}") from error
    return [np.asarray(result) for result in results]


def _attributes(op: Any) -> list[Any]:
    """Return the attributes as the eager runtime wants them: name, value, name, value, ..."""
    attributes: list[Any] = []
    for attribute in op.op_def.attr:
        value = op.get_attr(attribute.name)
        if isinstance(value, list):
            value = [_plain(item) for item in value]
        attributes += [attribute.name, _plain(value)]
    return attributes


def _plain(value: Any) -> Any:
    return value.as_datatype_enum if isinstance(value, tf.DType) else value
