"""Read a TFLite file: its subgraphs as plain data, by the schema that TensorFlow ships.

Files are not trusted: every vector is read as a view of the file's bytes, which cannot reach
beyond them, and inconsistent parts are an error.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from pockengine.compiler.ir.quantization import Quantization
from pockengine.errors import GraphError, ImportModelError
from pockengine.frontends.faults import check_own
from pockengine.frontends.tensorflow.lite.sparse import dense

MOST_PARTS = 100_000
"""Tensors, operators: no model for a device has more."""
MOST_GRAPHS = 1000
MOST_DIMS = 8
MAGIC = b"TFL3"

_DTYPES = {
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "INT32": np.int32,
    "INT64": np.int64,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT16": np.int16,
    "BOOL": np.bool_,
}


def _names(enum: type) -> dict[int, str]:
    return {number: name for name, number in vars(enum).items() if isinstance(number, int)}


_DECODERS = ("DENSIFY", "DEQUANTIZE")
"""Operators that decode a compact constant to floats."""

_TYPES = _names(schema.TensorType)
_OPERATORS = _names(schema.BuiltinOperator)
_OPTIONS = _names(schema.BuiltinOptions)


@dataclass(frozen=True)
class FileTensor:
    """One tensor: `data` is its content in the file, None if it is computed.

    A quantized one means (data - zero) * scale, with one scale for all or one along `axis`.
    `open` are the dimensions whose size the file leaves open; `shape` has one that it was tried by.
    A `state` is zero when a model starts.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    data: np.ndarray | None
    scale: np.ndarray
    zero: np.ndarray
    axis: int
    open: tuple[int, ...] = ()
    state: bool = False

    @property
    def quantized(self) -> bool:
        """Whether integers represent real numbers."""
        return self.scale.size > 0 and self.kind in ("INT8", "UINT8", "INT16", "INT32")

    def quantization(self) -> Quantization | None:
        """Return the quantization; None if it is missing or invalid."""
        if not self.quantized:
            return None
        zero = np.broadcast_to(self.zero if self.zero.size else 0, self.scale.shape)
        axis = self.axis if self.scale.size > 1 else None
        try:
            return Quantization(tuple(self.scale.tolist()), tuple(map(int, zero)), axis)
        except GraphError:  # a scale of zero: the tensor holds zeros
            return None

    def check(self) -> None:
        """Raise ImportModelError for scales and zero points that no integers can have."""
        if not self.quantized:
            return
        count, least = self.scale.size, 0.0 if self.data is not None else np.nextafter(0.0, 1.0)
        limits = np.iinfo(_DTYPES[self.kind])
        along = self.shape[self.axis : self.axis + 1] if self.axis >= 0 else ()
        if not (np.isfinite(self.scale).all() and (self.scale >= least).all()):
            fault = f"the scale {self.scale.min()}"
        elif count > 1 and along != (count,):
            fault = f"{count} scales along dimension {self.axis} of {list(self.shape)}"
        elif self.zero.size not in (0, 1, count):
            fault = f"{self.zero.size} zero points for {count} scales"
        elif self.zero.size and not limits.min <= self.zero.min() <= self.zero.max() <= limits.max:
            fault = f"a zero point beyond {self.kind}"
        else:
            return
        raise ImportModelError(
            f"the tensor {self.name!r} has {fault}: the file is damaged; convert the model again"
        )

    def real(self) -> np.ndarray:
        """Return the file's data, dequantized to floats."""
        assert self.data is not None
        if not self.quantized:
            return self.data.astype(np.float32) if self.kind == "FLOAT16" else self.data
        shape = [1] * len(self.shape)
        if self.scale.size > 1:
            shape[self.axis] = self.scale.size
        zero = np.broadcast_to(self.zero if self.zero.size else 0, self.scale.shape)
        shifted = self.data.astype(np.float64) - zero.reshape(shape)
        numbers = shifted * self.scale.reshape(shape)
        if numbers.size and np.abs(numbers).max() > np.finfo(np.float32).max:
            raise ImportModelError(f"the tensor {self.name!r} holds numbers beyond f32")
        return np.asarray(numbers, np.float32)


@dataclass(frozen=True)
class FileOperator:
    """One operator: its name in the schema, tensors by number (-1: missing), and its options.

    Those of a custom operator are bytes.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any


@dataclass(frozen=True)
class LiteGraph:
    """One subgraph: the model itself, a branch, or a part of a loop."""

    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class LiteModel:
    """The subgraphs of a file; `names` are the signature's names of tensors."""

    name: str
    names: dict[int, str]
    graphs: tuple[LiteGraph, ...]

    @property
    def main(self) -> LiteGraph:
        """The model itself."""
        return self.graphs[0]

    def name_of(self, number: int) -> str:
        """Return the user's name of a tensor."""
        return self.names.get(number) or self.main.tensors[number].name


def read_lite(path: Path) -> LiteModel:
    """Read a .tflite file; ImportModelError for a damaged one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImportModelError(f"{path} cannot be read: {error.strerror}") from error
    if data[4:8] != MAGIC:
        raise ImportModelError(f"{path} is no TFLite file: the mark {MAGIC.decode()} is missing")
    try:
        return _model(path, schema.Model.GetRootAs(data, 0))
    except ImportModelError:
        raise
    except (AttributeError, LookupError, MemoryError, struct.error, TypeError, ValueError) as error:
        check_own(error, f"it read {path}")
        # flatbuffers and NumPy raise these for places outside the file and sizes that do not fit
        raise ImportModelError(f"{path} is damaged: {error}; convert the model again") from error


def _model(path: Path, model: Any) -> LiteModel:
    counts = model.OperatorCodesLength(), model.SubgraphsLength()
    if counts[0] > MOST_PARTS or counts[1] > MOST_GRAPHS:
        raise ImportModelError(f"{path} is damaged: it claims to have {max(counts)} parts")
    if not counts[1] or not model.BuffersLength():
        raise ImportModelError(f"{path} is damaged: it has no graph, or no buffers")
    codes = [_code(model.OperatorCodes(i)) for i in range(counts[0])]
    graphs = tuple(_graph(path, model, codes, model.Subgraphs(i)) for i in range(counts[1]))
    named = (model.Subgraphs(0).Name() or path.stem.encode()).decode(errors="replace")
    return LiteModel(path.stem if named == "main" else named, _signature(model), graphs)


def _graph(path: Path, model: Any, codes: list[str], graph: Any) -> LiteGraph:
    counts = graph.TensorsLength(), graph.OperatorsLength()
    if max(counts) > MOST_PARTS:
        raise ImportModelError(f"{path} is damaged: it claims to have {max(counts)} parts")
    tensors = [_tensor(model, graph.Tensors(i)) for i in range(counts[0])]
    for tensor in tensors:
        tensor.check()
    operators = [_operator(codes, graph.Operators(i)) for i in range(counts[1])]
    ends = _numbers(graph.InputsAsNumpy()), _numbers(graph.OutputsAsNumpy())
    return LiteGraph(*_decoded(tensors, operators), *ends)


def _decoded(
    tensors: list[FileTensor], operators: list[FileOperator]
) -> tuple[tuple[FileTensor, ...], tuple[FileOperator, ...]]:
    """Replace operators that decode constants by the decoded constants.

    A result has the constant's name, which users know.
    """
    remaining = []
    for operator in operators:
        source = operator.inputs[0] if operator.name in _DECODERS else -1
        if source < 0 or tensors[source].data is None:
            remaining.append(operator)
        else:
            tensors[operator.outputs[0]] = tensors[source]
    return tuple(tensors), tuple(remaining)


def _signature(model: Any) -> dict[int, str]:
    """Return the first signature's names of inputs and outputs."""
    if not model.SignatureDefsLength():
        return {}
    signature = model.SignatureDefs(0)
    if max(signature.InputsLength(), signature.OutputsLength()) > MOST_PARTS:
        raise ImportModelError("a signature of absurdly many tensors")
    maps = [signature.Inputs(i) for i in range(signature.InputsLength())]
    maps += [signature.Outputs(i) for i in range(signature.OutputsLength())]
    return {entry.TensorIndex(): (entry.Name() or b"").decode(errors="replace") for entry in maps}


def _code(code: Any) -> str:
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _OPERATORS.get(number, f"operator {number}")
    return f"CUSTOM {(code.CustomCode() or b'').decode()}" if name == "CUSTOM" else name


def _operator(codes: list[str], operator: Any) -> FileOperator:
    kind, table = _OPTIONS.get(operator.BuiltinOptionsType()), operator.BuiltinOptions()
    options = getattr(schema, kind)() if kind not in (None, "NONE") and table else None
    if options is not None:
        options.Init(table.Bytes, table.Pos)
    custom = operator.CustomOptionsAsNumpy()
    if isinstance(custom, np.ndarray):
        options = custom.tobytes()
    return FileOperator(
        codes[operator.OpcodeIndex()],
        _numbers(operator.InputsAsNumpy()),
        _numbers(operator.OutputsAsNumpy()),
        options,
    )


def _tensor(model: Any, tensor: Any) -> FileTensor:
    name = (tensor.Name() or b"").decode(errors="replace")
    shape = _numbers(tensor.ShapeAsNumpy())
    kind = _TYPES.get(tensor.Type(), f"type {tensor.Type()}")
    if len(shape) > MOST_DIMS:
        raise ImportModelError(f"the tensor {name!r} has {len(shape)} dimensions")
    raw = model.Buffers(tensor.Buffer()).DataAsNumpy()
    data: np.ndarray | None = None
    if isinstance(raw, np.ndarray) and kind in _DTYPES:
        data = np.frombuffer(raw.tobytes(), _DTYPES[kind])
        sparsity = tensor.Sparsity()
        data = data.reshape(shape) if sparsity is None else dense(data, shape, sparsity)
    quantization = tensor.Quantization()
    empty = np.zeros(0, np.float32)
    scale = quantization.ScaleAsNumpy() if quantization else empty
    zero = quantization.ZeroPointAsNumpy() if quantization else empty
    return FileTensor(
        name,
        kind,
        shape,
        data=data,
        scale=scale if isinstance(scale, np.ndarray) else empty,
        zero=zero if isinstance(zero, np.ndarray) else empty,
        axis=quantization.QuantizedDimension() if quantization else 0,
        open=tuple(i for i, n in enumerate(_numbers(tensor.ShapeSignatureAsNumpy())) if n < 0),
        state=bool(tensor.IsVariable()),
    )


def _numbers(array: Any) -> tuple[int, ...]:
    """Read a vector; flatbuffers returns 0 if it is absent."""
    return tuple(int(number) for number in array) if isinstance(array, np.ndarray) else ()
