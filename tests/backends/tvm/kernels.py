"""TVM kernels as plain loops, one of each kind with a schedule, and a function that runs them."""

from typing import Any

import numpy as np
import tvm
from tvm import te, topi

from pockengine.backends.tvm.library import target_of
from pockengine.devices import load_device

TARGET = target_of(load_device("host"))


def convolution(size: int, kernel: int, stride: int) -> Any:
    x = te.placeholder((2, 6, size, size), name="x")
    w = te.placeholder((10, 6, kernel, kernel), name="w")
    y = topi.nn.conv2d_nchw(x, w, stride, kernel // 2, 1)
    return te.create_prim_func([x, w, topi.nn.relu(y)])


def product(rows: int, columns: int, length: int) -> Any:
    a, b = te.placeholder((rows, length), name="a"), te.placeholder((length, columns), name="b")
    return te.create_prim_func([a, b, topi.nn.matmul(topi.exp(a), b)])


def total(axes: tuple[int, ...]) -> Any:
    x, y = (te.placeholder((2, 12, 4, 5), name=name) for name in "xy")
    return te.create_prim_func([x, y, topi.sum(topi.multiply(x, y), axis=axes)])


def softmax() -> Any:
    x = te.placeholder((3, 1, 33), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def transposed() -> Any:
    x = te.placeholder((2, 18, 40), name="x")
    return te.create_prim_func([x, topi.transpose(x, (0, 2, 1))])


def copies() -> Any:
    x = te.placeholder((), name="x")
    return te.create_prim_func([x, topi.broadcast_to(x, (3, 5))])


FUNCTIONS = {
    "image of 12": convolution(12, 3, 1),
    "strided": convolution(7, 3, 2),
    "pointwise": convolution(3, 1, 1),
    "product": product(9, 20, 7),
    "column": product(17, 1, 3),
    "scalar": total((0, 1, 2, 3)),
    "channels": total((0, 2, 3)),
    "along rows": total((3,)),
    "over rows": total((0, 1, 2)),
    "softmax": softmax(),
    "transposed": transposed(),
    "copies of a scalar": copies(),
}


def run(function: Any) -> np.ndarray:
    """Build a function and return its last operand, computed from seeded data."""
    rng = np.random.default_rng(0)
    operands = [
        tvm.runtime.tensor(rng.standard_normal([int(n) for n in each.shape], np.float32))
        for each in function.params
    ]
    named = function.with_attr("global_symbol", "main")
    tvm.compile(tvm.IRModule({"main": named}), target=TARGET)["main"](*operands)
    result: np.ndarray = operands[-1].numpy()
    return result
