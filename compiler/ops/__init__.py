"""The closed set of ops, each defined once; importing this package registers them all."""

import pockengine.compiler.ir  # noqa: F401  first: the builder and the registry need each other
from pockengine.compiler.ops import (
    conv,
    elementwise,
    fusion,
    gather,
    layer_norm,
    loss,
    mask,
    mathematics,
    matmul,
    norm,
    pool,
    random,
    reduce,
    scan,
    shape,
    softmax,
    update,
)
from pockengine.compiler.ops.registry import OpDef, all_ops, define, lookup, node_cost

__all__ = [
    "OpDef",
    "all_ops",
    "conv",
    "define",
    "elementwise",
    "fusion",
    "gather",
    "layer_norm",
    "lookup",
    "loss",
    "mask",
    "mathematics",
    "matmul",
    "node_cost",
    "norm",
    "pool",
    "random",
    "reduce",
    "scan",
    "shape",
    "softmax",
    "update",
]
