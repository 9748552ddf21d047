"""Functions of TensorFlow that Keras 2 wrote into its files as layers, such as those of `x + y`.

Keras 3 has no such layers. A file names a function; only functions without side effects are called.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from pockengine.errors import ImportModelError

HARD_SIGMOID = {
    "class_name": "function",
    "module": None,
    "config": "pockengine>keras2_hard_sigmoid",
    "registered_name": "pockengine>keras2_hard_sigmoid",
}
"""Keras 2's activation `hard_sigmoid`; Keras 3 has a different function of that name."""
OPERATORS = frozenset({"SlicingOpLambda", "TFOpLambda"})
FOLDERS = ("linalg", "math", "nn")
"""Modules of TensorFlow all of whose functions only compute."""
_BASIC = """
    abs add add_n argmax argmin argsort batch_to_space boolean_mask broadcast_to cast
    clip_by_value concat convert_to_tensor cos cumsum divide einsum equal exp
    expand_dims eye fill floor gather gather_nd greater greater_equal identity image.resize less
    less_equal linspace logical_and logical_not logical_or matmul maximum minimum multiply
    negative norm not_equal one_hot ones ones_like pad pow range reduce_all reduce_any
    reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum repeat reshape
    reverse roll round scalar_mul shape sigmoid sign signal.fft signal.frame signal.rfft
    signal.stft sin size slice sort split sqrt square squeeze stack stop_gradient
    strided_slice subtract tanh tensordot tile transpose truediv unstack where zeros zeros_like
"""
BASIC = frozenset(_BASIC.split())
PYTHON: dict[str, Callable[..., Any]] = {
    "abs": tf.abs,
    "add": lambda x, y: x + y,
    "eq": lambda self, other: tf.equal(self, other),
    "floordiv": lambda x, y: x // y,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "lt": lambda x, y: x < y,
    "matmul": lambda x, y: x @ y,
    "mod": lambda x, y: x % y,
    "mul": lambda x, y: x * y,
    "ne": lambda self, other: tf.not_equal(self, other),
    "neg": tf.negative,
    "pow": lambda x, y: x**y,
    "sub": lambda x, y: x - y,
    "truediv": lambda x, y: x / y,
    "radd": lambda y, x: x + y,
    "rmatmul": lambda y, x: x @ y,
    "rmul": lambda y, x: x * y,
    "rpow": lambda y, x: x**y,
    "rsub": lambda y, x: x - y,
    "rtruediv": lambda y, x: x / y,
}
"""Python's operators, as Keras 2 names them (`__operators__.add`) and their arguments."""


def operator_of(part: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a function of TensorFlow as that of an `Operator`."""
    settings = part["config"]
    config = {
        "name": settings["name"],
        "function": settings["function"],
        "dtype": settings.get("dtype"),
    }
    return part | {
        "class_name": "Operator",
        "module": None,
        "registered_name": "pockengine>Operator",
        "config": config,
    }


def keras2_hard_sigmoid(x: Any) -> Any:
    """Return 0.2 x + 0.5 between 0 and 1; Keras 3's function of that name is x / 6 + 0.5."""
    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


keras.saving.register_keras_serializable("pockengine")(keras2_hard_sigmoid)


@keras.saving.register_keras_serializable("pockengine")
class Operator(keras.layers.Layer):
    """A layer that calls a function of TensorFlow which only computes."""

    def __init__(self, function: str, **kwargs: Any) -> None:
        """Store the name of a function, such as `nn.relu`; ImportModelError for others."""
        super().__init__(autocast=False, **kwargs)
        self.function = _function(function)

    def call(self, *args: Any, first: Any = None, name: str | None = None, **kwargs: Any) -> Any:
        """Call the function, with `first` if the first argument is a number.

        The name that Keras 2 gave the operator has no meaning.
        """
        del name
        return self.function(*(args if first is None else (first,)), **kwargs)


def _function(name: str) -> Callable[..., Any]:
    plain = name.removeprefix("compat.v1.")
    folder, _, last = plain.rpartition(".")
    if folder == "__operators__":
        found = _item if last == "getitem" else PYTHON.get(last)
    elif folder in FOLDERS and last[:1] != "_":
        found = getattr(getattr(tf, folder), last, None)
    else:
        found = getattr(getattr(tf, folder) if folder else tf, last) if plain in BASIC else None
    if not callable(found):
        raise ImportModelError(
            f"the model calls tf.{name}, which is not one of the functions that a model's file may "
            "call; build the model in Python, load its weights, and give that"
        )
    return found


def _item(x: Any, slice_spec: Any) -> Any:
    """Return `x[slice_spec]`; slices are dicts of start, stop and step."""
    several = slice_spec if isinstance(slice_spec, (list, tuple)) else [slice_spec]
    return x[tuple(_slice(one) for one in several)]


def _slice(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return slice(part["start"], part["stop"], part["step"]) if "start" in part else Ellipsis
