"""Batch normalization in training mode, and the two reductions it decomposes into.

    y = (x - mean) * rstd * gamma + beta,  rstd = 1 / sqrt(var + eps)

batch_norm gives (y, mean, var): mean and the biased var are taken over every dimension but the last
(channels); `ema_update` keeps the running statistics, and only y is differentiable. With frozen
statistics batch norm is plain elementwise arithmetic and needs no op. `decompose_norms` lowers
these ops to `moments`, `batch_norm_sums` and elementwise nodes, which then fuse.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _channels(x: TensorType) -> TensorType:
    if x.rank < 2 or x.dtype is not F32:
        raise GraphError(f"normalization over all but the last dimension needs f32, not {x}")
    return TensorType(F32, (x.shape[-1],))


def _expect(type_: TensorType, *others: TensorType) -> None:
    if any(other != type_ for other in others):
        raise GraphError(f"operands {', '.join(map(str, others))} must be {type_}")


def _infer_moments(types: Types, attrs: Attrs) -> Types:
    return (_channels(types[0]),) * 2


def _infer_norm(types: Types, attrs: Attrs) -> Types:
    x, gamma, beta = types
    channels = _channels(x)
    _expect(channels, gamma, beta)
    return (x, channels, channels)


def _infer_sums(types: Types, attrs: Attrs) -> Types:
    dy, x, mean, rstd = types
    _expect(x, dy)
    channels = _channels(x)
    _expect(channels, mean, rstd)
    return (channels, channels)


def _infer_dx(types: Types, attrs: Attrs) -> Types:
    dy, x, mean, rstd, gamma, dgamma, dbeta = types
    _expect(x, dy)
    _expect(_channels(x), mean, rstd, gamma, dgamma, dbeta)
    return (x,)


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1]).astype(np.float64)


def _eval_moments(arrays: Arrays, attrs: Attrs) -> Arrays:
    rows = _rows(arrays[0])
    return rows.mean(0).astype(np.float32), rows.var(0).astype(np.float32)


def _eval_norm(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, gamma, beta = arrays
    rows = _rows(x)
    mean, var = rows.mean(0), rows.var(0)
    y = (x - mean) * (gamma / np.sqrt(var + attrs["eps"])) + beta
    return y.astype(np.float32), mean.astype(np.float32), var.astype(np.float32)


def _eval_sums(arrays: Arrays, attrs: Attrs) -> Arrays:
    dy, x, mean, rstd = arrays
    cotangent, xhat = _rows(dy), (_rows(x) - mean) * rstd
    return cotangent.sum(0).astype(np.float32), (cotangent * xhat).sum(0).astype(np.float32)


def _eval_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    dy, x, mean, rstd, gamma, dgamma, dbeta = arrays
    count = x.size // x.shape[-1]
    xhat = (x.astype(np.float64) - mean) * rstd
    dx = gamma.astype(np.float64) * rstd * (dy - (dbeta + xhat * dgamma) / count)
    return (dx.astype(np.float32),)


def rstd_of(g: "Builder", node: Node) -> Value:
    """1 / sqrt(var + eps) of a batch_norm node; equal nodes are merged later."""
    return g.rsqrt(g.add(node.results[2], g.scalar(node.attrs["eps"])))


def _sums(g: "Builder", node: Node, dy: Value) -> tuple[Value, Value]:
    """Return (dbeta, dgamma) = (sum dy, sum dy xhat); equal nodes are merged later."""
    mean, rstd = node.results[1], rstd_of(g, node)
    dbeta, dgamma = g.emit("batch_norm_sums", dy, node.operands[0], mean, rstd).results
    return dbeta, dgamma


def _dx(g: "Builder", node: Node, dy: Value) -> Value:
    """dx = gamma rstd (dy - (sum dy + xhat sum dy xhat) / n)."""
    x, gamma, _ = node.operands
    mean, rstd = node.results[1], rstd_of(g, node)
    dbeta, dgamma = _sums(g, node, dy)
    return g.batch_norm_dx(dy, x, mean, rstd, gamma, dgamma, dbeta)


def _formula(g: "Builder", node: Node) -> Value:
    x, gamma, beta = node.operands
    axes = tuple(range(len(x.shape) - 1))
    x = g.sub(x, g.reduce_mean(x, axes=axes, keepdims=True))
    var = g.reduce_mean(g.square(x), axes=axes, keepdims=True)
    rstd = g.rsqrt(g.add(var, g.scalar(node.attrs["eps"])))
    return g.add(g.mul(g.mul(x, rstd), gamma), beta)


define("moments", "x", infer=_infer_moments, eval=_eval_moments)
define(
    "batch_norm",
    "x gamma beta",
    attrs={"eps": REQUIRED},
    infer=_infer_norm,
    eval=_eval_norm,
    vjp={
        "x": _dx,
        "gamma": lambda g, node, dy: _sums(g, node, dy)[1],
        "beta": lambda g, node, dy: _sums(g, node, dy)[0],
    },
    formula=_formula,
    linear=(1, 2),
    shifts=(2,),
)
define("batch_norm_sums", "dy x mean rstd", infer=_infer_sums, eval=_eval_sums, linear=(0,))
define(
    "batch_norm_dx",
    "dy x mean rstd gamma dgamma dbeta",
    infer=_infer_dx,
    eval=_eval_dx,
    linear=(0, 1, 2, 4, 5, 6),
)
