"""The ONNX frontend's table of operators; importing this package fills it."""

from pockengine.frontends.onnx.ops import (
    elementwise,
    loss,
    nn,
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
    "elementwise",
    "find_rule",
    "loss",
    "nn",
    "reduction",
    "resize",
    "shape",
    "training",
]
