"""Cumulative sums and reversal along one axis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _infer_cumsum(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if not 0 <= attrs["axis"] < x.rank:
        raise GraphError(f"cumsum: {x} has no axis {attrs['axis']}")
    return (x,)


def _infer_reverse(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    axes = attrs["axes"]
    if len(set(axes)) != len(axes) or any(not 0 <= axis < x.rank for axis in axes):
        raise GraphError(f"reverse: axes {axes} must be distinct axes of {x}")
    return (x,)


def _eval_cumsum(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    axis, wide = attrs["axis"], np.float64 if x.dtype.kind == "f" else x.dtype
    source = np.flip(x, axis) if attrs["reverse"] else x
    total = np.cumsum(source, axis=axis, dtype=wide)
    return ((np.flip(total, axis) if attrs["reverse"] else total).astype(x.dtype),)


def _cumsum_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y_i = sum of x_j with j <= i  =>  dx_j = sum of dy_i with i >= j."""
    return g.cumsum(dy, axis=node.attrs["axis"], reverse=not node.attrs["reverse"])


define(
    "cumsum",
    "x",
    attrs={"axis": REQUIRED, "reverse": False},
    infer=_infer_cumsum,
    eval=_eval_cumsum,
    vjp={"x": _cumsum_dx},
    linear=(0,),
)
define(
    "reverse",
    "x",
    stored=True,
    attrs={"axes": REQUIRED},
    infer=_infer_reverse,
    eval=lambda arrays, attrs: (np.flip(arrays[0], attrs["axes"]).copy(),),
    vjp={"x": lambda g, node, dy: g.reverse(dy, axes=node.attrs["axes"])},
    copies=True,
    linear=(0,),
    shifts=(0,),
)
