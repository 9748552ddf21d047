"""Types that our ops do not support, emulated by others."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, defs, helper

from pockengine.compiler.ir import F32, I32, I64, Builder, DType, Graph, TensorType
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit.bits import wrapped
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, plain

HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
FLOAT_CODES = (TensorProto.FLOAT, TensorProto.DOUBLE, *HALVES)
FLOATS = frozenset(map(helper.tensor_dtype_to_np_dtype, (*HALVES, TensorProto.DOUBLE)))
INTEGERS: Mapping[np.dtype, DType] = {
    **{np.dtype(name): I32 for name in ("int8", "uint8", "int16", "uint16")},
    np.dtype(np.uint32): I64,
    np.dtype(np.uint64): I64,
}
LARGE = np.dtype(np.uint64)
LARGE_USE = "uint64 numbers that are calculated, or reach 2^63; cast them to int64 before"
EMULATED: Mapping[np.dtype, DType] = {**INTEGERS, **dict.fromkeys(FLOATS, F32)}
BYTES = {np.dtype(np.int8): DType.I8, np.dtype(np.uint8): DType.U8}
"""Additional types of inputs, which ops do not compute with."""
_EXACT = """
    ArgMax ArgMin Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND
    Identity Max MaxPool Min Pad ReduceMax ReduceMin Reshape ScatterElements ScatterND Slice
    SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unsqueeze Where
"""
EXACT = frozenset(_EXACT.split())
"""Operators whose results are elements of their operands."""


def as_input(array: np.ndarray, numpy: np.dtype) -> np.ndarray:
    """Convert an example input from the file's type to the graph's type."""
    dtype = BYTES.get(numpy, EMULATED.get(numpy))
    return array if dtype is None else array.astype(dtype.numpy)


def is_float(dtype: np.dtype) -> bool:
    """Whether a tensor of this type becomes f32."""
    return dtype == F32.numpy or dtype in FLOATS


def emulated_dtype(numpy: Any, what: str) -> DType:
    """Return the type that emulates NumPy's; Unsupported, naming `what`, if there is none."""
    emulating = EMULATED.get(np.dtype(numpy))
    return known_dtype(numpy, what) if emulating is None else emulating


def emulated_array(array: np.ndarray) -> np.ndarray:
    """Convert a constant array to its emulating type; Unsupported if a number does not fit."""
    dtype = EMULATED.get(array.dtype)
    if array.dtype == LARGE and array.size and int(array.max()) >= 2**63:
        raise Unsupported(LARGE_USE)
    return array if dtype is None else array.astype(dtype.numpy)


def declare_input(g: Builder, name: str, numpy: np.dtype, type_: TensorType) -> Tensor:
    """Declare an input: bytes unchanged, other emulated types as the type that emulates them."""
    stored = TensorType(BYTES.get(numpy, type_.dtype), type_.shape)
    return emit.cast(g, plain(g.input(name, stored)), type_.dtype)


class Narrow:
    """The file's types by name, of inputs, weights and narrow integers."""

    def __init__(self, opsets: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> None:
        """`arrays` has the constants, which keep their own type."""
        self.opsets = opsets
        self.arrays = arrays
        self.kinds: dict[str, np.dtype] = {}

    def fitted(self, g: Builder, node: NodeProto, results: Sequence[Any]) -> list[Any]:
        """Wrap an operator's results to the range of their types, as the standard requires."""
        fitted = list(results)
        for place, (name, result) in enumerate(zip(node.output, results, strict=False)):
            self.kinds.pop(name, None)
            kind = self._kind(node, place) if isinstance(result, Tensor) else None
            if kind is None or kind not in INTEGERS:
                continue
            if result.dtype is F32:
                raise Unsupported(f"{kind} numbers; cast them to float before")
            self.kinds[name] = kind
            if kind == LARGE and not self._keeps_size(node):
                raise Unsupported(LARGE_USE)
            if kind != LARGE and node.op_type not in EXACT:
                fitted[place] = wrapped(g, result, kind)
        return fitted

    def _keeps_size(self, node: NodeProto) -> bool:
        """Whether a uint64 result only copies elements of the operator's inputs."""
        if node.op_type != "Cast":
            return node.op_type in EXACT
        kind = self.kinds.get(node.input[0], self._known(node.input[0]))
        return kind is not None and kind.kind in "bu"

    def _kind(self, node: NodeProto, place: int) -> np.dtype | None:
        """Return the type of a result, from an input or an attribute."""
        attributes = {a.name: a.i for a in node.attribute if a.name in ("to", "dtype")}
        for code in attributes.values():
            return np.dtype(helper.tensor_dtype_to_np_dtype(code))
        kinds = [self.kinds.get(name, self._known(name)) for name in node.input]
        if not any(kind in INTEGERS for kind in kinds):
            return None
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs, outputs = _types(node.op_type, self.opsets.get(domain, 1), domain)
        declared = _at(outputs, place)
        same = (kind for i, kind in enumerate(kinds) if _at(inputs, i) == declared)
        return next(same, None) if declared else None

    def _known(self, name: str) -> np.dtype | None:
        return self.arrays[name].dtype if name in self.arrays else None


def _at(types: Sequence[str], place: int) -> str:
    """Return the type at a place; the last one repeats."""
    return types[min(place, len(types) - 1)] if types else ""


@cache
def _types(op: str, opset: int, domain: str) -> tuple[list[str], list[str]]:
    """Return the standard's names for the types of an operator's inputs and results."""
    if not defs.has(op, opset, domain):
        return [], []
    schema = defs.get_schema(op, opset, domain)
    return [x.type_str for x in schema.inputs], [x.type_str for x in schema.outputs]


def note_widened(graph: Graph, types: Mapping[str, np.dtype]) -> None:
    """Report in one line the inputs and weights whose float width differs from f32."""
    read = {*graph.params, *(value.name for value in graph.inputs)}
    found = sorted({str(types[name]) for name in read & types.keys() if types[name] in FLOATS})
    if found:
        warnings.warn(
            f"{graph.name} has tensors of {' and '.join(found)}: they are computed and trained as "
            "float32, and weights that are written back have the file's type",
            stacklevel=6,
        )
