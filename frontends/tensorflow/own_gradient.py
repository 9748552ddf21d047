"""What trains in another way than by the gradient of its parts: known to be the same, or refused.

TensorFlow marks what `tf.custom_gradient` wraps by an IdentityN with the name of a Python function;
a Keras model may compute its loss, or change its weights, by code of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tensorflow.python.framework import ops

from pockengine.compiler.ir import Builder
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor

MARK = "_gradient_op_type"
TF = "tensorflow.python.ops"
SWISH = (f"{TF}.nn_impl", "swish.")
RECOMPUTED = (f"{TF}.custom_gradient", "recompute_grad.")
OWN_METHODS = ("train_step", "compute_loss", "compute_own_loss")


def check_gradient(g: Builder, op: Any, values: Sequence[Any]) -> None:
    """Raise Unsupported for an operator whose gradient is the user's, where something trains."""
    marked = op.type == "IdentityN" and MARK in op.node_def.attr
    if not marked and op.type != "PreventGradient":
        return
    if not any(isinstance(value, Tensor) and emit.trains(g, value) for value in values):
        return
    if not marked:
        raise Unsupported("no gradient may pass here; freeze what it reads, or leave it out")
    name = op.get_attr(MARK).decode()
    function = _gradient_function(name)
    own = _is_of(function, RECOMPUTED) or (
        _is_swish(op) and (function is None or _is_of(function, SWISH))
    )
    if not own:
        called = getattr(function, "__qualname__", name)
        raise Unsupported(
            f"a gradient of its own ({called}), which the forward function does not tell; for a "
            "straight-through estimator write x + tf.stop_gradient(f(x) - x), else drop the rule"
        )


def _gradient_function(name: str) -> Any:
    """Return the Python function that gives the gradient; None where this process has none."""
    try:
        wrapper = ops.gradient_registry.lookup(name)
    except LookupError:
        return None
    for inner in _closure(wrapper):
        for function in _closure(inner):
            if function.__code__ is not inner.__code__:
                return function
    return wrapper


def _closure(function: Any) -> Iterator[Any]:
    """Yield the functions that a function holds."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if hasattr(held, "__code__"):
            yield held


def _is_of(function: Any, origin: tuple[str, str]) -> bool:
    module, name = origin
    return getattr(function, "__module__", "") == module and function.__qualname__.startswith(name)


def _is_swish(op: Any) -> bool:
    """Return whether the first input is x sigmoid(beta x), of the second one."""
    product, x = op.inputs[0].op, op.inputs[1]
    if product.type != "Mul" or not any(part is x for part in product.inputs):
        return False
    sigmoid = next((part.op for part in product.inputs if part is not x), product)
    if sigmoid.type != "Sigmoid":
        return False
    inner = sigmoid.inputs[0]
    return inner is x or (inner.op.type == "Mul" and any(part is x for part in inner.op.inputs))


def check_model(model: Any, loss: Any) -> None:
    """Raise ImportModelError for a Keras model that trains by code of its own."""
    if loss is not None:
        for name in OWN_METHODS:
            maker = next((c for c in type(model).__mro__ if name in vars(c)), None)
            if maker is not None and maker.__module__.split(".")[0] not in ("keras", "tensorflow"):
                raise ImportModelError(
                    f"{model.name} trains by its own {maker.__name__}.{name}, which loss= would "
                    "pass over; give a function of tensors that returns the loss, without loss="
                )
    for variable in model.trainable_variables:
        constraint = getattr(variable, "constraint", None)
        if constraint is not None:
            raise ImportModelError(
                f"{variable.path} has the constraint {type(constraint).__name__}, which changes it "
                "after each update; a compiled step does not: drop it, or freeze the variable"
            )
