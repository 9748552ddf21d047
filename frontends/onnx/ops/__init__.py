"""The ONNX frontend's table of operators; importing this package fills it."""

from pockengine.frontends.onnx.ops import (
    classic,
    elementwise,
    indexing,
    integers,
    loss,
    nn,
    numbers,
    recurrent,
    reduction,
    regions,
    resize,
    shape,
    signal,
    training,
    windows,
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
    "integers",
    "loss",
    "nn",
    "numbers",
    "recurrent",
    "reduction",
    "regions",
    "resize",
    "shape",
    "signal",
    "training",
    "windows",
]
