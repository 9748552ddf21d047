"""ONNX tensor descriptions: inline, or in an external file."""

import numpy as np
import onnx
from onnx import TensorProto

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.compiler.ir.types import DType, Shape


def described(name: str, dtype: DType, shape: Shape) -> onnx.ValueInfoProto:
    """Return a model's description of an input or output."""
    return onnx.helper.make_tensor_value_info(name, NUMBERS[dtype], list(shape))


def tensor(name: str, data: np.ndarray) -> onnx.TensorProto:
    """Return a small constant, stored in the model."""
    contiguous = np.ascontiguousarray(data).reshape(data.shape)
    return onnx.TensorProto(
        name=name,
        data_type=NUMBERS[DType.of(data)],
        dims=data.shape,
        raw_data=contiguous.tobytes(),
    )


def outside(name: str, dtype: DType, shape: Shape, file: str, place: range) -> onnx.TensorProto:
    """Return a constant whose bytes are in an external file."""
    known = {"location": file, "offset": place.start, "length": len(place)}
    return onnx.TensorProto(
        name=name,
        data_type=NUMBERS[dtype],
        dims=shape,
        data_location=TensorProto.EXTERNAL,
        external_data=[
            onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in known.items()
        ],
    )
