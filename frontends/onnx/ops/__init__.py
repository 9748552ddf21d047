"""The ONNX frontend's table of operators; importing this package fills it."""

from pockengine.frontends.onnx.ops import (
    classic,
    elementwise,
    indexing,
    loss,
    nn,
    recurrent,
    reduction,
    resize,
    shape,
    training,
)
from pockengine.frontends.onnx.ops.registry import (
    RULES,
    OnnxContext,
    OnnxRule,
    Result,
    find_rule,
)

__all__ = [
    "RULES",
    "OnnxContext",
    "OnnxRule",
    "Result",
    "classic",
    "elementwise",
    "find_rule",
    "indexing",
    "loss",
    "nn",
    "recurrent",
    "reduction",
    "resize",
    "shape",
    "training",
]
