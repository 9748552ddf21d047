"""Update ops: they write a param in place and have no results.

`axis`, `start` and `stop` restrict an update to a slice of the param (channel-sparse training): the
gradient then has the slice's shape, and so have the states that belong to it. The oracle returns
the new contents of each written operand.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

Attrs = Mapping[str, Any]
SLICE = {"axis": None, "start": 0, "stop": 0}


def updated_type(param: TensorType, attrs: Attrs) -> TensorType:
    """Type of the part of `param` that an update with these attrs writes."""
    axis = attrs["axis"]
    if axis is None:
        return param
    start, stop = attrs["start"], attrs["stop"]
    if not 0 <= axis < param.rank or not 0 <= start < stop <= param.shape[axis]:
        raise GraphError(f"update of [{start}:{stop}] on axis {axis} is outside of {param}")
    return param.with_shape((*param.shape[:axis], stop - start, *param.shape[axis + 1 :]))


def updated_part(param: np.ndarray, attrs: Attrs) -> np.ndarray:
    """View of the elements of `param` that an update with these attrs writes."""
    axis = attrs["axis"]
    if axis is None:
        return param
    index = (slice(None),) * axis + (slice(attrs["start"], attrs["stop"]),)
    return np.asarray(param[index])


def _infer_sgd(types: Types, attrs: Attrs) -> Types:
    param, grad, lr = types[:3]
    part = updated_type(param, attrs)
    if lr != TensorType(F32, ()) or any(type_ != part for type_ in (grad, *types[3:])):
        raise GraphError(f"sgd_update of {part} needs such a gradient and a scalar rate: {types}")
    if (attrs["momentum"] != 0) != (len(types) == 4):
        raise GraphError("sgd_update takes a velocity if, and only if, momentum is not zero")
    return ()


def _eval_sgd(arrays: Arrays, attrs: Attrs) -> Arrays:
    """PyTorch's SGD: v = m v + (1 - d) g';  p -= lr (g' + m v if nesterov else v)."""
    param, grad, lr = arrays[0].copy(), arrays[1], arrays[2]
    part, momentum = updated_part(param, attrs), np.float32(attrs["momentum"])
    step = grad + np.float32(attrs["weight_decay"]) * part
    if len(arrays) == 3:
        part -= lr * step
        return (param,)
    velocity = momentum * arrays[3] + np.float32(1 - attrs["dampening"]) * step
    part -= lr * (step + momentum * velocity if attrs["nesterov"] else velocity)
    return param, velocity


def _infer_ema(types: Types, attrs: Attrs) -> Types:
    state, value = types
    if state != value or state.dtype is not F32:
        raise GraphError(f"ema_update of {state} needs an f32 value of its type, not {value}")
    return ()


define(
    "sgd_update",
    "param grad lr velocity",
    optional=1,
    attrs={
        "momentum": 0.0,
        "dampening": 0.0,
        "weight_decay": 0.0,
        "nesterov": False,
        **SLICE,
    },
    infer=_infer_sgd,
    eval=_eval_sgd,
    writes=(0, 3),
)
define(  # state = (1 - momentum) state + momentum scale value; scale: n / (n - 1) for a variance
    "ema_update",
    "state value",
    attrs={"momentum": REQUIRED, "scale": 1.0},
    infer=_infer_ema,
    eval=lambda arrays, attrs: (
        (
            np.float32(1 - attrs["momentum"]) * arrays[0]
            + np.float32(attrs["momentum"] * attrs["scale"]) * arrays[1]
        ).astype(np.float32),
    ),
    writes=(0,),
)
