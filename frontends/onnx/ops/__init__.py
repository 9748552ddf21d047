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
    Context,
    OnnxRule,
    Result,
    find_rule,
)

__all__ = [
    "RULES",
    "Context",
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
