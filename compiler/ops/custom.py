"""User-defined gradients: a formula in the graph instead of an op's rule.

    ct = cotangent(shape=...)            stands for the cotangent of the result
    dx = ... ct ...                      the user's formula
    y' = custom_gradient(y, ct, x, dx)   y, whose gradient flows to x as dx says, and not through y

`compiler/autodiff.py` recomputes the formula from the actual cotangent. Neither op remains after
differentiation (`passes/backward/differentiate.py`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

CUSTOM = "custom_gradient"
COTANGENT = "cotangent"


def is_variable(value: Value) -> bool:
    """Whether a value is a renamed copy of another: x' whose gradient flows to x."""
    node = value.node
    if node is None or node.op != CUSTOM or len(node.operands) != 4:
        return False
    y, cotangent, x, dx = node.operands
    return y is x and dx is cotangent


def _infer(types: Types, attrs: Mapping[str, Any]) -> Types:
    y, cotangent, *pairs = types
    if cotangent != y or len(pairs) % 2 or pairs[::2] != pairs[1::2]:
        raise GraphError(f"{CUSTOM} of {', '.join(map(str, types))}: a gradient is like its value")
    return (y,)


def _eval(arrays: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    return (arrays[0],)


def _eval_cotangent(arrays: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    return (np.zeros(attrs["shape"], np.float32),)


define(CUSTOM, "y cotangent pairs", infer=_infer, eval=_eval, variadic=True)
define(
    COTANGENT,
    "",
    attrs={"shape": REQUIRED},
    infer=lambda types, attrs: (TensorType(F32, attrs["shape"]),),
    eval=_eval_cotangent,
)
