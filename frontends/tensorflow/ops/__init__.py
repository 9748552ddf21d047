"""One module a topic; importing this package registers every rule."""

from pockengine.frontends.tensorflow.ops import (
    blocks,
    elementwise,
    lists,
    nn,
    random,
    reduction,
    shape,
)
from pockengine.frontends.tensorflow.ops.registry import (
    RULES,
    Context,
    Known,
    Opaque,
    TensorList,
    TfRule,
)

__all__ = [
    "RULES",
    "Context",
    "Known",
    "Opaque",
    "TensorList",
    "TfRule",
    "blocks",
    "elementwise",
    "lists",
    "nn",
    "random",
    "reduction",
    "shape",
]
