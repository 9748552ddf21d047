"""Read ONNX files that may be damaged or hostile: sizes are checked before anything is allocated.

Large tensors may lie in external files. Those are opened only within the model's folder, after
resolving links, and read only within their bounds.
"""

import math
from os import PathLike
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, checker, numpy_helper

from pockengine.errors import ImportModelError, reason_of
from pockengine.frontends.onnx.control import nested

RUNTIMES = "SimplifiedLayerNormalization"
"""An operator that ONNX Runtime writes in the standard's domain, unknown to its checker."""
MAX_BYTES = 2**40
"""Tensors above a TiB are treated as damage."""


def read_model(source: str | Path | ModelProto) -> tuple[ModelProto, Path | None]:
    """Read and check a model; also return the folder that must contain its external data."""
    if isinstance(source, ModelProto):
        _check(source)
        return source, None
    if not isinstance(source, str | PathLike):
        raise ImportModelError(
            f"an ONNX model is a file or a ModelProto, not {type(source).__name__}"
        )
    path = Path(source)
    try:
        model = onnx.load_model(path, load_external_data=False)
    except FileNotFoundError:
        raise ImportModelError(f"there is no ONNX file {path}") from None
    except OSError as error:
        raise ImportModelError(
            f"the ONNX file {path} cannot be read: {reason_of(error)}"
        ) from error
    except (DecodeError, ValueError) as error:
        raise ImportModelError(
            f"{path} is no ONNX model, or is cut short ({error}); export or download it again"
        ) from error
    _check(model)
    return model, path.absolute().parent


def _check(model: ModelProto) -> None:
    """Run the standard's own checker on everything except the tensors' data, which `array_of`
    checks.
    """
    if not model.HasField("graph") or not model.graph.node:
        raise ImportModelError("the ONNX model has no operators, or is cut short; export it again")
    _check_names(model.graph)
    bare, foreign = without_data(model), False
    for node in nested(bare.graph.node):
        if node.op_type == RUNTIMES and not node.domain:
            node.domain = RUNTIMES
            foreign = True
        for attribute in node.attribute:  # the checker looks for files in the current folder
            if attribute.t.data_location == TensorProto.EXTERNAL:
                attribute.t.CopyFrom(TensorProto(data_type=attribute.t.data_type, dims=[0]))
    if foreign:
        bare.opset_import.append(onnx.helper.make_opsetid(RUNTIMES, 1))
    try:
        checker.check_model(bare)
    except checker.ValidationError as error:
        raise ImportModelError(
            f"the ONNX model {model.graph.name!r} breaks the standard: {str(error).strip()}"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise ImportModelError(
            f"the ONNX model {model.graph.name!r} cannot be checked: {str(error).strip()}"
        ) from error


def _check_names(graph: GraphProto) -> None:
    """Refuse names that are not text: a damaged file has them as bytes."""
    named = (*graph.initializer, *graph.input, *graph.output, *graph.node)
    parts = [graph.name, *(entry.name for entry in named)]
    for node in graph.node:
        parts += [node.op_type, node.domain, *node.input, *node.output]
    wrong = next((part for part in parts if not isinstance(part, str)), None)
    if wrong is not None:
        raise ImportModelError(f"the ONNX model has the name {wrong!r}, which is no UTF-8 text")


def without_data(model: ModelProto) -> ModelProto:
    """Copy a model with its initializers turned into inputs, and with a shape for each output."""
    bare = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(bare, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name not in ("initializer", "sparse_initializer"):
            _copy_field(bare.graph, field.name, value)
    for output in bare.graph.output:  # exporters leave it out, which the checker refuses
        if output.type.WhichOneof("value") == "tensor_type":
            output.type.tensor_type.shape.SetInParent()
    known = {value.name for value in bare.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in known:
            dims = [max(size, 0) for size in tensor.dims]
            bare.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, dims)
            )
    return bare


def _copy_field(target: object, name: str, value: object) -> None:
    """Set one field of a message, of any kind."""
    current = getattr(target, name)
    if hasattr(current, "MergeFrom"):
        current.MergeFrom(value)
    else:
        setattr(target, name, value)


def array_of(tensor: TensorProto, folder: Path | None) -> np.ndarray:
    """Read a tensor; ImportModelError if its data do not match its shape."""
    name = tensor.name or "a tensor of the model"
    itemsize = _itemsize(tensor, name)
    if any(size < 0 for size in tensor.dims):
        raise ImportModelError(f"{name} has the negative shape {list(tensor.dims)}")
    count = math.prod(tensor.dims)
    if count * max(itemsize, 1) > MAX_BYTES:
        raise ImportModelError(f"{name} has the absurd shape {list(tensor.dims)}")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, name, count, folder)
    stored = _element_count(tensor, itemsize)
    if stored is not None and stored != count:
        raise ImportModelError(
            f"{name} of shape {list(tensor.dims)} needs {count} elements and has {stored}; the "
            "file is damaged"
        )
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (TypeError, ValueError) as error:
        raise ImportModelError(f"{name} cannot be read: {error}") from error


def _itemsize(tensor: TensorProto, name: str) -> int:
    """Bytes of one element in `raw_data`; 0 for types of less than a byte, and strings."""
    small = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "STRING")
    try:
        kind = TensorProto.DataType.Name(tensor.data_type)
        if kind in small:
            return 0
        return int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, ValueError):
        raise ImportModelError(f"{name} has the unknown element type {tensor.data_type}") from None


_TYPED_FIELDS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.INT32: "int32_data",
    TensorProto.INT64: "int64_data",
    TensorProto.BOOL: "int32_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.FLOAT16: "int32_data",
    TensorProto.BFLOAT16: "int32_data",
    TensorProto.INT8: "int32_data",
    TensorProto.INT16: "int32_data",
    TensorProto.UINT8: "int32_data",
    TensorProto.UINT16: "int32_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.STRING: "string_data",
}


def _element_count(tensor: TensorProto, itemsize: int) -> int | None:
    """Count the elements in the file; None if only NumPy can tell."""
    if tensor.HasField("raw_data"):
        whole = itemsize and len(tensor.raw_data) % itemsize == 0
        return len(tensor.raw_data) // itemsize if whole else None if not itemsize else -1
    field = _TYPED_FIELDS.get(tensor.data_type)
    return None if field is None else len(getattr(tensor, field))


def _external(tensor: TensorProto, name: str, count: int, folder: Path | None) -> np.ndarray:
    """Read a tensor from the external file that it names."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ImportModelError(
            f"the data of {name} lie in the file {location!r}; give the model's path instead of "
            "its proto, or load it with its external data"
        )
    path = _inside(folder, location, name)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(count * dtype.itemsize)))
    except ValueError:
        raise ImportModelError(f"{name}: offset or length of its data is no number") from None
    if length != count * dtype.itemsize or not 0 <= offset <= path.stat().st_size - length:
        raise ImportModelError(
            f"{name} needs {count * dtype.itemsize} bytes; {location!r} does not hold them at "
            f"{offset} with length {length}"
        )
    data = np.fromfile(path, dtype.newbyteorder("<"), count, offset=offset)
    return data.astype(dtype, copy=False).reshape(tuple(tensor.dims))


def _inside(folder: Path, location: str, name: str) -> Path:
    """Resolve an external file; paths that leave the folder are refused."""
    try:
        root, path = folder.resolve(), (folder / location).resolve()
        outside = not location or Path(location).is_absolute() or not path.is_relative_to(root)
        missing = not outside and not path.is_file()
    except (OSError, RuntimeError, TypeError, ValueError):  # a damaged name is of bytes
        raise ImportModelError(f"{name}: {location!r} is no usable file name") from None
    if outside:
        raise ImportModelError(
            f"the data of {name} lie in {location!r}, outside of the model's folder; put the file "
            "beside the model"
        )
    if missing:
        raise ImportModelError(f"the data of {name} are missing: there is no file {path}")
    return path
