"""Evaluate operators with constant inputs: shape arithmetic left by tracing.

TensorFlow's own kernels evaluate a list of side-effect-free operators whose results can be bounded
in advance.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.execute import execute

from pockengine.frontends import bounds
from pockengine.frontends.emit.nn import Unsupported

# Operators whose results are no larger than their inputs.
_NARROW = """
    Abs All Any ArgMax ArgMin BroadcastArgs Cast Ceil ConcatV2 Cumsum Erf Exp ExpandDims Floor
    Identity IdentityN InvertPermutation Log LogicalNot MatrixBandPart Max Mean Min Neg OnesLike
    Pack Prod Rank Reciprocal Reshape ReverseV2 Rint Round Rsqrt Shape ShapeN Sign Sin Cos Size
    Slice Snapshot Split SplitV Sqrt Square Squeeze StopGradient StridedSlice Sum Tanh Transpose
    Unpack ZerosLike
"""
_BROADCASTING = """
    Add AddV2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual
    LogicalAnd LogicalOr Maximum Minimum Mod Mul NotEqual Pow RealDiv Select SelectV2
    SquaredDifference Sub TruncateDiv TruncateMod
"""

BOUNDS: dict[str, bounds.Bound] = {
    **dict.fromkeys(_NARROW.split(), bounds.same_size),
    **dict.fromkeys(_BROADCASTING.split(), bounds.broadcast),
    "BroadcastTo": bounds.expanded,
    "Fill": bounds.filled,
    "GatherV2": bounds.gathered,
    "Range": bounds.ranged,
    "Tile": bounds.tiled,
}
"""Operator -> maximum number of elements of its result."""


def fold(op: Any, arrays: bounds.Arrays, elements: int | None = None) -> list[np.ndarray]:
    """Compute an operator; Unsupported if it cannot be evaluated, or its result is too large.

    `elements` is the number of results, if its shapes determine it.
    """
    try:
        bound = BOUNDS[op.type] if elements is None else lambda _: elements
        bounds.check_bound(bound, arrays)
        inputs = [
            tf.constant(array, dtype=source.dtype)
            for array, source in zip(arrays, op.inputs, strict=True)
        ]
        results = execute(
            op.type, len(op.outputs), inputs, tuple(_attributes(op)), context.context()
        )
    except Unsupported:
        raise
    except Exception as error:  # kernels raise any exception on invalid input
        raise Unsupported(f"its constant result cannot be computed: {error}") from error
    return [np.asarray(result.numpy()) for result in results]  # of bfloat16, a number has no array


def _attributes(op: Any) -> list[Any]:
    """Return the attributes in the form of the eager runtime: name, value, name, value, ..."""
    attributes: list[Any] = []
    for attribute in op.op_def.attr:
        value = op.get_attr(attribute.name)
        if isinstance(value, list):
            value = [_plain(item) for item in value]
        attributes += [attribute.name, _plain(value)]
    return attributes


def _plain(value: Any) -> Any:
    return value.as_datatype_enum if isinstance(value, tf.DType) else value
