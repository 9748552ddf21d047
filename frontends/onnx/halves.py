"""Convert models with 16-bit floats to float32, for running in ONNX Runtime beside ours."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from pockengine.frontends.onnx.control import bodies, nested
from pockengine.frontends.onnx.emulated_types import FLOATS, HALVES
from pockengine.frontends.onnx.file import array_of

CODES = ("to", "dtype", "stash_type")
"""Attributes that name a type."""


def has_halves(model: ModelProto) -> bool:
    """Whether a model has tensors of 16-bit floats, or casts to such."""
    values = (*model.graph.input, *model.graph.output)
    typed = any(value.type.tensor_type.elem_type in HALVES for value in values)
    return (
        typed
        or any(tensor.data_type in HALVES for tensor in _tensors(model))
        or any(attribute.i in HALVES for attribute in _codes(model))
    )


def without_halves(model: ModelProto, folder: Path | None) -> ModelProto:
    """Return a copy that computes in float32 and contains its data."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for tensor in _tensors(copy):
        if tensor.data_type in HALVES or tensor.data_location == TensorProto.EXTERNAL:
            data = array_of(tensor, folder)
            data = data.astype(np.float32) if tensor.data_type in HALVES else data
            tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))
    for attribute in _codes(copy):
        attribute.i = TensorProto.FLOAT if attribute.i in HALVES else attribute.i
    for graph in _graphs(copy):
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type in HALVES:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
    return copy


def full_type(dtype: np.dtype) -> np.dtype:
    """Return the type that an input has by then."""
    return np.dtype(np.float32) if dtype in FLOATS and dtype.itemsize == 2 else dtype


def _graphs(model: ModelProto) -> Iterator[GraphProto]:
    yield model.graph
    for node in nested(model.graph.node):
        yield from bodies(node)


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    yield from nested(model.graph.node)
    for function in model.functions:
        yield from nested(function.node)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    for graph in _graphs(model):
        yield from graph.initializer
    for node in _nodes(model):
        yield from (a.t for a in node.attribute if a.type == AttributeProto.TENSOR)


def _codes(model: ModelProto) -> Iterator[AttributeProto]:
    for node in _nodes(model):
        yield from (a for a in node.attribute if a.name in CODES)
