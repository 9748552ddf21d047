"""Attach a file's tensors to a graph's params, without reading them."""

from collections.abc import Mapping

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.graph import Graph, Param
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType, converted
from pockengine.errors import GraphError


def attach(graph: Graph, tensors: Mapping[str, Contents]) -> None:
    """Use these tensors, in the framework's names and layouts, as initial contents of params.

    A file may have part of the params (a model's files are several). Floats are widened when read
    (bf16 to f32). GraphError names a tensor without a param.
    """
    for name, contents in tensors.items():
        param = graph.params.get(name)
        if param is None:
            raise GraphError(f"graph {graph.name} has no param {name!r}, which the file holds")
        param.contents = _in_our_layout(param, contents)


def _in_our_layout(param: Param, contents: Contents) -> Contents:
    declared, order = param.value.type, param.permutation
    stored = contents.type if order is None else contents.type.transposed(order)
    widens = stored.dtype.is_float and declared.dtype is DType.F32
    if stored.shape != declared.shape or not (stored.dtype is declared.dtype or widens):
        raise GraphError(
            f"{param.name}: the file holds {contents.type}, which is not {declared}"
            + ("" if order is None else f" in the order {order}")
        )

    if isinstance(contents, Grid):
        return contents if order is None else contents.transposed(order)

    def load() -> np.ndarray:
        array = contents.read()
        array = array if order is None else array.transpose(order)
        return np.ascontiguousarray(converted(array, declared.dtype)).reshape(declared.shape)

    return Lazy(declared, load, param.name)
