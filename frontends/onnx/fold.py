"""Evaluate ONNX operators with constant inputs: shape arithmetic left by exporters.

The standard's reference implementation evaluates a list of operators whose results can be bounded
in advance.
"""

import numpy as np
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from pockengine.frontends import bounds
from pockengine.frontends.emit.nn import Unsupported

# Operators whose results are no larger than their inputs.
_NARROW = """
    Abs ArgMax ArgMin Cast CastLike Ceil Clip Compress Concat Cos CumSum Erf Exp Flatten Floor
    Identity IsInf IsNaN Log Neg Not Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    Reshape Round ScatterElements ScatterND Shape Sign Sin Size Slice Split Sqrt Squeeze TopK
    Transpose Trilu Unsqueeze
"""
_BROADCASTING = """
    Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Where Xor
"""

BOUNDS: dict[str, bounds.Bound] = {
    **dict.fromkeys(_NARROW.split(), bounds.same_size),
    **dict.fromkeys(_BROADCASTING.split(), bounds.broadcast),
    "ConstantOfShape": bounds.filled,
    "Expand": bounds.expanded,
    "Gather": bounds.gathered,
    "GatherElements": bounds.same_size,
    "NonZero": lambda arrays: arrays[0].size * max(arrays[0].ndim, 1),
    "Range": bounds.ranged,
    "Tile": bounds.tiled,
    "Unique": lambda arrays: 4 * arrays[0].size,
}
"""Bound of each operator's number of results."""


def can_fold(node: NodeProto) -> bool:
    """Return whether this operator is evaluated if all its inputs are constant."""
    return node.domain in ("", "ai.onnx") and node.op_type in BOUNDS


def fold(node: NodeProto, arrays: bounds.Arrays, opset: int) -> list[np.ndarray | None]:
    """Evaluate an operator; Unsupported if that is impossible, or the result is too large."""
    if node.op_type == "Range":  # functions of the standard give vectors of one number
        arrays = [array.reshape(()) for array in arrays if array.size == 1]
    try:
        bounds.check_bound(BOUNDS[node.op_type], arrays)
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
        found = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        results = map(np.asarray, found)
        return [next(results) if name else None for name in node.output]
    except Unsupported:
        raise
    except Exception as error:  # the evaluator raises whatever NumPy does on nonsense
        raise Unsupported(f"its constant result cannot be computed: {error}") from error
