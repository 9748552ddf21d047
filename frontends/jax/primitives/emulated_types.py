"""Types that our ops do not support, emulated by wider ones."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from pockengine.compiler.ir import F32, I32, I64, Builder, DType
from pockengine.frontends import emit
from pockengine.frontends.emit.bits import wrapped
from pockengine.frontends.emit.halves import rounded
from pockengine.frontends.layout import Tensor

HALVES: Mapping[np.dtype, DType] = {
    np.dtype(jnp.bfloat16): DType.BF16,
    np.dtype(np.float16): DType.F16,
}
INTEGERS: Mapping[np.dtype, DType] = {
    **{np.dtype(name): I32 for name in ("int8", "uint8", "int16", "uint16")},
    np.dtype(np.uint32): I64,
}
EMULATED: Mapping[np.dtype, DType] = {**INTEGERS, **dict.fromkeys(HALVES, F32)}
"""NumPy's type -> the IR type that represents it."""

BYTES = {np.dtype(np.int8): DType.I8, np.dtype(np.uint8): DType.U8}
"""Additional types of inputs, which ops do not compute with."""

_MOVING = """
    all_gather broadcast_in_dim clamp concatenate copy copy_p cummax cummin device_put dynamic_slice
    dynamic_update_slice expand_dims gather max min optimization_barrier pad reduce_max reduce_min
    reduce_window_max reduce_window_min rem reshape rev scatter scatter-max scatter-min select_n
    shift_right_arithmetic shift_right_logical sharding_constraint slice sort split squeeze stack
    stop_gradient tile top_k transpose unstack
"""
EXACT = frozenset(_MOVING.split())
"""Primitives whose results are elements of their operands, or as small."""
EXACT_FLOATS = EXACT | {"abs", "neg", "sign", "ceil", "floor", "round"}


def fitted(g: Builder, name: str, x: Tensor, dtype: np.dtype, *, forward: bool) -> Tensor:
    """Bring a primitive's result into the range, or to the precision, of its type."""
    if dtype in HALVES and x.dtype is F32 and name not in EXACT_FLOATS:
        return rounded(g, x, HALVES[dtype], forward=forward)
    if dtype in INTEGERS and x.dtype is not F32 and name not in EXACT:
        return wrapped(g, x, dtype)
    return x


def converted(g: Builder, x: Tensor, dtype: np.dtype) -> Tensor:
    """Convert to an emulated integer type: floats saturate, integers wrap around."""
    if x.dtype is not F32:
        return wrapped(g, emit.cast(g, x, EMULATED[dtype]), dtype)
    limits, whole = np.iinfo(dtype), emit.cast(g, x, EMULATED[dtype])
    bounded = emit.arithmetic(g, "maximum", whole, int(limits.min))
    return emit.arithmetic(g, "minimum", bounded, int(limits.max))


def input_type(dtype: np.dtype) -> DType | None:
    """Return the type that emulates an input's; None if it is not emulated."""
    return BYTES.get(dtype, EMULATED.get(dtype))


def plain_array(array: np.ndarray) -> np.ndarray:
    """Convert a constant array to its emulating type."""
    dtype = EMULATED.get(array.dtype)
    return array if dtype is None else array.astype(dtype.numpy)
