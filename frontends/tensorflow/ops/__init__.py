"""One module a topic; importing this package registers every rule."""

from pockengine.frontends.tensorflow.ops import (
    blocks,
    elementwise,
    image,
    lists,
    matrices,
    nn,
    patches,
    random,
    reduction,
    scatter,
    shape,
    slicing,
    truths,
    volume,
)
from pockengine.frontends.tensorflow.ops.registry import (
    RULES,
    Known,
    Opaque,
    TensorList,
    TfContext,
    TfRule,
)

__all__ = [
    "RULES",
    "Known",
    "Opaque",
    "TensorList",
    "TfContext",
    "TfRule",
    "blocks",
    "elementwise",
    "image",
    "lists",
    "matrices",
    "nn",
    "patches",
    "random",
    "reduction",
    "scatter",
    "shape",
    "slicing",
    "truths",
    "volume",
]
