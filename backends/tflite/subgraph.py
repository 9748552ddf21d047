"""Write a TFLite subgraph: tensors, operators, constants and variables.

The runtime's kernels broadcast only few dimensions: see `broadcast`.
"""

from collections.abc import Sequence

import numpy as np

from pockengine.backends.runtimes.layout import Layout, canonical, laid_out
from pockengine.backends.space import broadcast_strides, collapse
from pockengine.backends.tflite.kinds import KINDS, RESOURCE
from pockengine.backends.tflite.parts import (
    Attribute,
    LiteOperator,
    LiteSubgraph,
    LiteTensor,
)
from pockengine.backends.tflite.shared import Shared
from pockengine.compiler.ir.types import DType, Shape

MOST_BROADCAST = 4
"""Dimensions that every elementwise kernel of the runtime broadcasts over."""
OPTIONS = {
    "ARG_MAX": "ArgMaxOptions",
    "ASSIGN_VARIABLE": "AssignVariableOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CALL_ONCE": "CallOnceOptions",
    "CAST": "CastOptions",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "CUMSUM": "CumsumOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GATHER": "GatherOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "READ_VARIABLE": "ReadVariableOptions",
    "SOFTMAX": "SoftmaxOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "VAR_HANDLE": "VarHandleOptions",
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"), "ReducerOptions"),
}
"""Attribute tables of the operators that have any."""


class SubgraphWriter:
    """A subgraph while it is written: constants, operators and variables."""

    def __init__(self, name: str, shared: Shared) -> None:
        self.shared, self.subgraph = shared, LiteSubgraph(name)
        self.nodes: list[str] = []
        self.label = ""
        self._constants: dict[tuple[int, Shape], LiteTensor] = {}
        self._handles: dict[str, LiteTensor] = {}

    def call_once(self, subgraph: int) -> None:
        """Call another subgraph first, once per model."""
        self._append("CALL_ONCE", (), (), InitSubgraphIndex=subgraph)

    def op(
        self, op: str, *inputs: LiteTensor, shape: Shape, kind: str = "", **attrs: Attribute
    ) -> LiteTensor:
        """Append an operator of one output; its kind is that of the first input by default."""
        result = self.subgraph.tensor(f"{self.label}.{op}", kind or inputs[0].kind, shape)
        self._append(op, inputs, (result,), **attrs)
        return result

    def input(self, name: str, kind: str, shape: Shape) -> LiteTensor:
        """Append an input of the subgraph."""
        tensor = self.subgraph.tensor(name, kind, shape)
        self.subgraph.inputs.append(tensor.number)
        return tensor

    def variable(self, name: str, kind: str, shape: Shape) -> LiteTensor:
        """Return a variable's current value."""
        return self.op("READ_VARIABLE", self._handle(name), shape=shape, kind=kind)

    def assign(self, name: str, tensor: LiteTensor) -> None:
        """Assign a tensor to a variable."""
        self._append("ASSIGN_VARIABLE", (self._handle(name), tensor), ())

    def reshape(self, tensor: LiteTensor, shape: Shape) -> LiteTensor:
        """Reshape a tensor."""
        if tensor.shape == shape:
            return tensor
        return self.op("RESHAPE", tensor, self.numbers(shape), shape=shape)

    def transpose(self, tensor: LiteTensor, perm: Layout) -> LiteTensor:
        """Transpose a tensor."""
        if perm == canonical(len(perm)):
            return tensor
        shape = laid_out(tensor.shape, perm)
        return self.op("TRANSPOSE", tensor, self.numbers(perm), shape=shape)

    def cast(self, tensor: LiteTensor, kind: str) -> LiteTensor:
        """Convert a tensor."""
        if tensor.kind == kind:
            return tensor
        return self.op("CAST", tensor, shape=tensor.shape, kind=kind)

    def broadcast(self, op: str, *tensors: LiteTensor, kind: str = "") -> LiteTensor:
        """Append an elementwise operator with NumPy broadcasting.

        If there are too many dimensions, those that all operands broadcast equally are merged; if
        there are still too many, the operands are expanded first.
        """
        kind = kind or tensors[-1].kind
        shape: Shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
        if len(shape) <= MOST_BROADCAST or all(tensor.shape == shape for tensor in tensors):
            return self.op(op, *tensors, shape=shape, kind=kind)
        strides = [broadcast_strides(tensor.shape, shape) for tensor in tensors]
        sizes, walks, _ = collapse(shape, strides)
        if len(sizes) <= MOST_BROADCAST:
            merged = [
                self.reshape(tensor, _walked(sizes, walk))
                for tensor, walk in zip(tensors, walks, strict=True)
            ]
        else:
            merged, sizes = [self.expand(tensor, shape) for tensor in tensors], list(shape)
        return self.reshape(self.op(op, *merged, shape=tuple(sizes), kind=kind), shape)

    def expand(self, tensor: LiteTensor, shape: Shape) -> LiteTensor:
        """Broadcast a tensor to a shape."""
        if tensor.shape == shape:
            return tensor
        return self.op("BROADCAST_TO", tensor, self.numbers(shape), shape=shape)

    def numbers(self, values: Sequence[int]) -> LiteTensor:
        """Return a constant i32 vector, for shapes and axes."""
        return self.constant(np.asarray(values, np.int32))

    def scalar(self, number: float, dtype: DType = DType.F32) -> LiteTensor:
        """Return a scalar constant."""
        return self.constant(np.asarray(number, dtype.numpy))

    def constant(self, data: np.ndarray) -> LiteTensor:
        """Return a constant, shared among equal arrays."""
        return self.shared_tensor(self.shared.constant(data), data.shape, KINDS[DType.of(data)])

    def unsigned(self, number: int) -> LiteTensor:
        """Return a constant of 32 unsigned bits, which is not one of our types."""
        data = self.shared.constant(np.asarray(number, np.uint32))
        return self.shared_tensor(data, (), "UINT32")

    def outputs(self, results: dict[str, LiteTensor]) -> dict[str, int]:
        """Make tensors the outputs, each a separate tensor made by an operator."""
        made = {number for operator in self.subgraph.operators for number in operator.outputs}
        taken: set[int] = set()
        numbers = {}
        for name, tensor in results.items():
            if tensor.number not in made or tensor.number in taken:
                whole = self.numbers(tensor.shape)
                tensor = self.op("RESHAPE", tensor, whole, shape=tensor.shape)
            taken.add(tensor.number)
            numbers[name] = tensor.number
        self.subgraph.outputs += numbers.values()
        return numbers

    def shared_tensor(self, data: np.ndarray, shape: Shape, kind: str) -> LiteTensor:
        """Return a tensor of an array from `shared`."""
        key = (id(data), shape)
        if key not in self._constants:
            tensor = self.subgraph.tensor("constant", kind, shape)
            self.subgraph.data[tensor.number] = data
            self._constants[key] = tensor
        return self._constants[key]

    def _handle(self, name: str) -> LiteTensor:
        if name not in self._handles:
            handle = self.subgraph.tensor(f"{name}.handle", RESOURCE, ())
            self._append("VAR_HANDLE", (), (handle,), Container="", SharedName=name)
            self._handles[name] = handle
        return self._handles[name]

    def _append(
        self,
        op: str,
        inputs: Sequence[LiteTensor],
        outputs: Sequence[LiteTensor],
        **attrs: Attribute,
    ) -> None:
        read, made = (tuple(t.number for t in tensors) for tensors in (inputs, outputs))
        self.subgraph.operators.append(
            LiteOperator(op, read, made, options=OPTIONS.get(op, ""), attrs=attrs)
        )
        self.nodes.append(self.label)


def _walked(sizes: Sequence[int], strides: Sequence[int]) -> Shape:
    """Shape of an operand, with 1 in dimensions that it does not iterate."""
    return tuple(n if step else 1 for n, step in zip(sizes, strides, strict=True))
