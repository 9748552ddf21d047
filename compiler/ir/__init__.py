"""The intermediate representation: typed SSA graphs."""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Param, Value
from pockengine.compiler.ir.types import BOOL, F32, I32, I64, DType, Shape, TensorType

__all__ = [
    "BOOL",
    "F32",
    "I32",
    "I64",
    "Builder",
    "DType",
    "Graph",
    "Node",
    "Param",
    "Shape",
    "TensorType",
    "Value",
]
