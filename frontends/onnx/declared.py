"""Convert the file's attributes and types to Python's values and ours."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper

from pockengine.compiler.ir import DType, TensorType
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.emulated_types import emulated_dtype

MAX_ELEMENTS = 2**36
"""Tensors with more elements are treated as errors: 256 GiB of floats."""


def check_axis(node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> None:
    """Refuse an axis that the first input does not have; Flatten's may be one past the last."""
    axis, first = attributes.get("axis"), inputs[0] if inputs else None
    if isinstance(first, Tensor) and isinstance(axis, int):
        end = first.rank + (node.op_type == "Flatten")
        if not -first.rank <= axis < end:
            raise Unsupported(f"axis {axis} of a tensor of {first.rank} dimensions")


def attribute_of(attribute: AttributeProto) -> Any:
    """Return an attribute as a Python value."""
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise Unsupported("a graph inside of it; unroll or flatten the model")
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type == AttributeProto.STRINGS:
        return [part.decode(errors="replace") for part in value]
    if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        return list(value)
    return value


def dtype_named(code: int) -> DType:
    """Return our type for an element type of the file; Unsupported if there is none."""
    known = code in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(code) if known else code
    return emulated_dtype(numpy_type(code), f"elements of type {name}")


def numpy_type(code: int) -> np.dtype:
    """Return NumPy's type for an element type of the file; void if there is none."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError):
        return np.dtype(np.void)


def checked_type(type_: TensorType) -> TensorType:
    """Return a type; Unsupported if it is absurdly large."""
    if type_.size > MAX_ELEMENTS:
        raise Unsupported(f"a tensor of shape {list(type_.shape)} is absurdly large")
    return type_


def sizes_of(declared: Any) -> list[int | None]:
    """Return the sizes of a declared tensor; None for open ones, also written as -1 or 0."""
    return [dim.dim_value if dim.dim_value > 0 else None for dim in declared.shape.dim]


def check_declared(value: Any, tensor: Tensor) -> None:
    """Compare an output with the file's declaration: a wrong type is an error, a wrong shape a
    warning.
    """
    declared = value.type.tensor_type
    if declared.elem_type and dtype_named(declared.elem_type) is not tensor.dtype:
        raise Unsupported(
            f"the file declares {dtype_named(declared.elem_type).value}, but it is "
            f"{tensor.dtype.value}"
        )
    sizes = sizes_of(declared)
    fits = len(sizes) == tensor.rank and all(
        size in (None, own) for size, own in zip(sizes, tensor.shape, strict=True)
    )
    if declared.HasField("shape") and not fits:
        warnings.warn(
            f"the file declares the shape {sizes} for {value.name!r}, but it has "
            f"{list(tensor.shape)}, which is what the program gives",
            stacklevel=2,
        )
