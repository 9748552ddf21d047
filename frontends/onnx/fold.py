"""Compute ONNX operators whose inputs are all known: the arithmetic on shapes that exporters leave.

The standard's own reference implementation does it, for a list of operators whose results can be
bounded before they are computed.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from pockengine.frontends.emit.nn import Unsupported

MAX_ELEMENTS = 2**24
"""Of the inputs, and of the outputs: enough for the mask of a sequence of 4096."""

Arrays = Sequence[np.ndarray]


def _inputs(arrays: Arrays) -> int:
    return sum(array.size for array in arrays)


def _broadcast(arrays: Arrays) -> int:
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def _product(arrays: Arrays) -> int:
    """Bound operators that may read each element of one for each of the other."""
    return math.prod(max(array.size, 1) for array in arrays[:2])


def _numbers(array: np.ndarray) -> list[int]:
    return [int(number) for number in array.ravel()]


def _filled(arrays: Arrays) -> int:
    return math.prod(_numbers(arrays[0]))


def _expanded(arrays: Arrays) -> int:
    return math.prod(np.broadcast_shapes(arrays[0].shape, tuple(_numbers(arrays[1]))))


def _tiled(arrays: Arrays) -> int:
    return arrays[0].size * math.prod(_numbers(arrays[1]))


def _ranged(arrays: Arrays) -> int:
    start, limit, step = (float(array) for array in arrays)
    return math.ceil((limit - start) / step)


# Operators that give back at most what they take.
_NARROW = """
    Abs ArgMax ArgMin Cast CastLike Ceil Concat CumSum Erf Exp Flatten Floor Identity Log Neg Not
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round Shape Size Slice Sqrt Squeeze
    Transpose Trilu Unsqueeze
"""
_BROADCASTING = """
    Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Where Xor
"""

BOUNDS: dict[str, Callable[[Arrays], int]] = {
    **dict.fromkeys(_NARROW.split(), _inputs),
    **dict.fromkeys(_BROADCASTING.split(), _broadcast),
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "Gather": _product,
    "GatherElements": _inputs,
    "Range": _ranged,
    "Tile": _tiled,
}
"""Operator -> the largest number of elements that it can give."""


def can_fold(node: NodeProto) -> bool:
    """Return whether this operator is computed now when all its inputs are known."""
    return node.domain in ("", "ai.onnx") and node.op_type in BOUNDS


def fold(node: NodeProto, arrays: Arrays, opset: int) -> list[np.ndarray]:
    """Compute an operator; Unsupported when it cannot be, or gives too much."""
    try:
        bound = max(_inputs(arrays), BOUNDS[node.op_type](arrays))
        if bound > MAX_ELEMENTS:
            raise Unsupported(f"a constant of {bound} elements; make it an input of the model")
        names = [name for name in node.input if name]
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "constant", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        results = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        return [np.asarray(result) for result in results]
    except Unsupported:
        raise
    except Exception as error:  # the evaluator raises whatever NumPy does on nonsense
        raise Unsupported(f"its constant result cannot be computed: {error}") from error
