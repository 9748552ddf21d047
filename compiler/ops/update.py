"""Update ops: they write a param in place and have no results.

`axis` with `start` and `stop`, or with ascending indices `index`, restricts an update to a part of
the param (channel-sparse training): the gradient and the states then have the part's shape. The
oracle returns the new contents of each written operand. The optimizers match PyTorch's of the same
name; factors that depend only on the step number are scalar operands, computed once for all params.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

Attrs = Mapping[str, Any]
PART = {"axis": None, "start": 0, "stop": 0, "index": None}
SCALAR = TensorType(F32, ())


def updated_type(param: TensorType, attrs: Attrs) -> TensorType:
    """Type of the part of `param` that an update with these attrs writes."""
    axis = attrs["axis"]
    if axis is None:
        return param
    if attrs["index"] is not None:
        return _indexed_type(param, axis, attrs["index"])
    start, stop = attrs["start"], attrs["stop"]
    if not 0 <= axis < param.rank or not 0 <= start < stop <= param.shape[axis]:
        raise GraphError(f"update of [{start}:{stop}] on axis {axis} is outside of {param}")
    return param.with_shape((*param.shape[:axis], stop - start, *param.shape[axis + 1 :]))


def _indexed_type(param: TensorType, axis: int, index: tuple[int, ...]) -> TensorType:
    rising = all(first < second for first, second in pairwise(index))
    inside = 0 <= axis < param.rank and index and index[0] >= 0 and index[-1] < param.shape[axis]
    if not rising or not inside:
        raise GraphError(f"update of {index} on axis {axis} of {param}: needs rising indices in it")
    return param.with_shape((*param.shape[:axis], len(index), *param.shape[axis + 1 :]))


def updated_part(attrs: Attrs) -> tuple[Any, ...]:
    """NumPy index of the elements that an update with these attrs writes."""
    if attrs["axis"] is None:
        return (...,)
    index = attrs["index"]
    part = slice(attrs["start"], attrs["stop"]) if index is None else list(index)
    return (*(slice(None),) * attrs["axis"], part)


def optimizer_update(
    name: str,
    scalars: str,
    states: str,
    attrs: Attrs,
    rule: Callable[..., tuple[np.ndarray, ...]],
    *,
    optional: int = 0,
) -> None:
    """Define the update `name(param, grad, *scalars, *states)`.

    `rule(param, grad, scalars, states, attrs)` returns the new part of the param and the new
    states. The last `optional` states may be absent; `rule` then gets None for them.
    """
    names = ["param", "grad", *scalars.split(), *states.split()]
    first_state = 2 + len(scalars.split())

    def infer(types: Types, node_attrs: Attrs) -> Types:
        if any(type_ != SCALAR for type_ in types[2:first_state]):
            raise GraphError(f"{name}: {scalars} must be f32 scalars")
        _check_tensors(name, updated_type(types[0], node_attrs), (types[1], *types[first_state:]))
        return ()

    def evaluate(arrays: Arrays, node_attrs: Attrs) -> Arrays:
        param, part = arrays[0].copy(), updated_part(node_attrs)
        own = SimpleNamespace(**{key: node_attrs[key] for key in attrs})
        states = (*arrays[first_state:], *[None] * (len(names) - len(arrays)))
        param[part], *new = rule(param[part].copy(), arrays[1], arrays[2:first_state], states, own)
        return (param, *(np.asarray(state, np.float32) for state in new))

    define(
        name,
        " ".join(names),
        optional=optional,
        attrs={**attrs, **PART},
        infer=infer,
        eval=evaluate,
        writes=(0, *range(first_state, len(names))),
        pointwise=True,
    )


def _check_tensors(name: str, part: TensorType, tensors: Types) -> None:
    if any(type_ != part for type_ in tensors):
        raise GraphError(f"{name} of {part} needs a gradient and states like it, not {tensors}")


def _f(number: float) -> np.float32:
    return np.float32(number)


def _sgd(p: Any, g: Any, scalars: Any, states: Any, a: Any) -> tuple[Any, ...]:
    """v = m v + g';  p -= lr (g' + m v if nesterov else v), with g' = g + d p."""
    (lr,), (v,) = scalars, states
    g = g + _f(a.weight_decay) * p
    if v is None:
        return (p - lr * g,)
    v = _f(a.momentum) * v + g
    return p - lr * (g + _f(a.momentum) * v if a.nesterov else v), v


def _adam(p: Any, g: Any, scalars: Any, states: Any, a: Any) -> tuple[Any, ...]:
    """p -= rate m / (sqrt(v) root + eps), with rate = lr / (1 - b1^t), root = (1 - b2^t)^-1/2."""
    (lr, rate, root), (m, v) = scalars, states
    if a.decoupled:
        p = p * (1 - lr * _f(a.weight_decay))
    else:
        g = g + _f(a.weight_decay) * p
    m = _f(a.beta1) * m + _f(1 - a.beta1) * g
    v = _f(a.beta2) * v + _f(1 - a.beta2) * g * g
    return p - rate * m / (np.sqrt(v) * root + _f(a.eps)), m, v


def _rmsprop(p: Any, g: Any, scalars: Any, states: Any, a: Any) -> tuple[Any, ...]:
    """s = a s + (1 - a) g^2;  v = m v + g / (sqrt(s) + eps);  p -= lr v."""
    (lr,), (s, v) = scalars, states
    g = g + _f(a.weight_decay) * p
    s = _f(a.alpha) * s + _f(1 - a.alpha) * g * g
    scaled = g / (np.sqrt(s) + _f(a.eps))
    if v is None:
        return p - lr * scaled, s
    v = _f(a.momentum) * v + scaled
    return p - lr * v, s, v


def _adagrad(p: Any, g: Any, scalars: Any, states: Any, a: Any) -> tuple[Any, ...]:
    """s += g^2;  p -= lr g / (sqrt(s) + eps)."""
    (lr,), (s,) = scalars, states
    g = g + _f(a.weight_decay) * p
    s = s + g * g
    return p - lr * g / (np.sqrt(s) + _f(a.eps)), s


def _lion(p: Any, g: Any, scalars: Any, states: Any, a: Any) -> tuple[Any, ...]:
    """p = (1 - lr d) p - lr sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g (arXiv 2302.06675)."""
    (lr,), (m,) = scalars, states
    direction = np.sign(_f(a.beta1) * m + _f(1 - a.beta1) * g)
    p = p * (1 - lr * _f(a.weight_decay)) - lr * direction
    return p, _f(a.beta2) * m + _f(1 - a.beta2) * g


def _infer_same(types: Types, _: Attrs) -> Types:
    state, value = types
    if state != value or state.dtype is not F32:
        raise GraphError(f"an update of {state} needs an f32 value of its type, not {value}")
    return ()


def _infer_assign(types: Types, _: Attrs) -> Types:
    state, value = types
    if value not in (state, state.with_shape(())):
        raise GraphError(f"{state} is assigned a value of its type or a scalar, not {value}")
    return ()


def _eval_ema(arrays: Arrays, attrs: Attrs) -> Arrays:
    state, value = arrays
    momentum = attrs["momentum"]
    return (_f(1 - momentum) * state + _f(momentum * attrs["scale"]) * value,)


optimizer_update(
    "sgd_update",
    "lr",
    "velocity",
    attrs={"momentum": 0.0, "weight_decay": 0.0, "nesterov": False},
    rule=_sgd,
    optional=1,
)
optimizer_update(
    "adam_update",
    "lr rate root",
    "first second",
    attrs={"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": False},
    rule=_adam,
)
optimizer_update(
    "rmsprop_update",
    "lr",
    "square velocity",
    attrs={"alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0},
    rule=_rmsprop,
    optional=1,
)
optimizer_update(
    "adagrad_update", "lr", "square", attrs={"eps": 1e-10, "weight_decay": 0.0}, rule=_adagrad
)
optimizer_update(
    "lion_update",
    "lr",
    "first",
    attrs={"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
    rule=_lion,
)
define(  # state = (1 - momentum) state + momentum scale value; scale: n / (n - 1) for a variance
    "ema_update",
    "state value",
    attrs={"momentum": REQUIRED, "scale": 1.0},
    infer=_infer_same,
    eval=_eval_ema,
    writes=(0,),
    follows=True,
    pointwise=True,
)
define(  # state = state + scale value: gradients of micro-batches
    "add_update",
    "state value",
    attrs={"scale": 1.0},
    infer=_infer_same,
    eval=lambda arrays, attrs: (arrays[0] + _f(attrs["scale"]) * arrays[1],),
    writes=(0,),
    pointwise=True,
)
define(  # state = value of any type, a scalar filling all of it
    "assign",
    "state value",
    infer=_infer_assign,
    eval=lambda arrays, attrs: (np.broadcast_to(arrays[1], arrays[0].shape).copy(),),
    writes=(0,),
    follows=True,
    pointwise=True,
    stored=True,
)
