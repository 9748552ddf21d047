"""Custom gradients: supported by their rule, or refused.

TensorFlow marks what `tf.custom_gradient` wraps by an IdentityN with the name of a Python function;
a Keras model may compute its loss, or change its weights, by code of its own.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import ops

from pockengine.compiler.ir import Builder
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.emit.gradient import OwnGradient
from pockengine.frontends.emit.loss import ctc
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.ops import Opaque
from pockengine.frontends.tensorflow.ops.emulated_types import HALVES

if TYPE_CHECKING:
    from pockengine.frontends.tensorflow.graph import Importer

MARK = "_gradient_op_type"
TF = "tensorflow.python.ops"
SWISH = (f"{TF}.nn_impl", "swish.")
CTC = (f"{TF}.ctc_ops", "ctc_loss_dense.")
RECOMPUTED = (f"{TF}.custom_gradient", "recompute_grad.")
OWN_METHODS = ("train_step", "compute_loss", "compute_own_loss")


def is_ctc_loss(op: Any) -> bool:
    """Return whether this marks the loss of `tf.nn.ctc_loss`, which reads logits of blank 0.

    TensorFlow computes it by loops as long as the data say; ours is an operator.
    """
    marked = op.type == "IdentityN" and MARK in op.node_def.attr
    return marked and _is_of(_gradient_function(op.get_attr(MARK).decode()), CTC)


def sources_of(op: Any) -> Sequence[Any]:
    """Return the inputs of an operator; a CTC loss is computed from its arguments."""
    if not is_ctc_loss(op):
        return list(op.inputs)
    turned = _turned(op)
    return [op.inputs[1] if turned is None else turned, *op.inputs[2:]]


def _turned(op: Any) -> Any:
    """Return the logits whose last class, the blank, TensorFlow puts before the others.

    It puts what is behind the blank there too, which is empty.
    """
    parts = list(op.inputs[1].op.inputs)[:-1]
    if op.inputs[1].op.type != "ConcatV2" or len(parts) != 3 or parts[2].shape[2] != 0:
        return None
    return parts[1].op.inputs[0]


def _ctc_loss(importer: "Importer", op: Any, values: Sequence[Any]) -> list[Any]:
    """Build the loss of each sample, then the arguments as they are."""
    if any(isinstance(value, Opaque) for value in values):
        return [next(value for value in values if isinstance(value, Opaque))] * (len(values) + 1)
    g = importer.g
    logits, labels, label_lengths, lengths = map(importer.tensor, values[:4])
    if _turned(op) is not None:
        last = logits.shape[2] - 1
        blank, others = (2, last, last + 1), (2, 0, last)
        parts = [emit.slice_dim(g, logits, *places) for places in (blank, others)]
        logits = emit.concat(g, parts, 2)
    return [ctc(g, logits, labels, lengths=lengths, label_lengths=label_lengths, blank=0), *values]


def has_own_gradient(g: Builder, op: Any, values: Sequence[Any]) -> bool:
    """Return whether an operator's gradient is the user's, where something trains.

    Raises Unsupported if no gradient may pass.
    """
    if is_ctc_loss(op):
        return True
    marked = op.type == "IdentityN" and MARK in op.node_def.attr
    if not marked and op.type != "PreventGradient":
        return False
    if not any(isinstance(value, Tensor) and emit.trains(g, value) for value in values):
        return False
    if not marked:
        raise Unsupported("no gradient may pass here; freeze what it reads, or leave it out")
    function = _gradient_function(op.get_attr(MARK).decode())
    return not _is_of(function, RECOMPUTED) and not (
        _is_swish(op) and (function is None or _is_of(function, SWISH))
    )


def build(importer: "Importer", op: Any, known: dict[str, Any], function: str) -> list[Any]:
    """Build the function wrapped by `tf.custom_gradient`: its results, then the unchanged
    arguments.

    The user's rule runs once, in TensorFlow's graph; the operators that it adds are built as a
    formula.
    """
    g = importer.g
    values = [known[source.name] for source in sources_of(op)]
    if is_ctc_loss(op):
        return _ctc_loss(importer, op, values)
    before = {inner.name for _, inner in getattr(op.graph, "captures", ())}
    placeholders, slopes = _traced(op, values)
    twins = {
        inner.name: _twin(op, outer)
        for outer, inner in getattr(op.graph, "captures", ())
        if inner.name not in before
    }
    importer.extend(op.graph, list(twins.values()), known, function)
    known.update({name: known[twin.name] for name, twin in twins.items()})
    count = next((i for i, slope in enumerate(slopes) if slope is not None), len(slopes))
    count = min(count, len(op.outputs) - 1)
    floats = [i for i in range(count) if op.outputs[i].dtype.name in ("float32", *HALVES)]
    own = OwnGradient(g, [importer.tensor(values[i]).shape for i in floats])
    for index, place in enumerate(placeholders):
        known[place.name] = Opaque("the cotangent of an argument")
        if index in floats:
            known[place.name] = own.cotangents[floats.index(index)]
    importer.extend(op.graph, [s for s in slopes if s is not None], known, function)
    pairs = [
        (value, importer.tensor(known[slope.name]))
        for value, slope in zip(values, slopes, strict=True)
        if slope is not None and isinstance(value, Tensor) and emit.trains(g, value)
    ]
    results = own.results([importer.tensor(values[i]) for i in floats], pairs)
    for index, result in zip(floats, results, strict=True):
        values[index] = result
    return values


def _twin(op: Any, outer: Any) -> Any:
    """Return the original, in the operator's graph, of a tensor saved by the rule.

    A nested tf.function is built from its definition, which keeps the names of its operators.
    """
    try:
        twin = op.graph.get_tensor_by_name(outer.name)
    except (KeyError, ValueError):
        twin = None
    if twin is None or twin.op.type != outer.op.type or outer.graph.name not in op.graph.name:
        raise Unsupported(
            f"a gradient of its own that reads {outer.name!r} of another function; compute it in "
            "the rule"
        )
    return twin


def _traced(op: Any, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Run the user's rule in the operator's graph; return its cotangents and its slopes."""
    name = op.get_attr(MARK).decode()
    try:
        rule = ops.gradient_registry.lookup(name)
    except LookupError:
        raise Unsupported(
            "a gradient of its own, whose rule a file does not hold; give the model itself"
        ) from None
    try:
        with op.graph.as_default():
            placeholders = [
                tf.compat.v1.placeholder(output.dtype, getattr(value, "shape", output.shape))
                for output, value in zip(op.outputs, values, strict=True)
            ]
            slopes = [s if s is None else tf.convert_to_tensor(s) for s in rule(op, *placeholders)]
    except Exception as error:  # whatever the user's own rule raises
        called = getattr(_gradient_function(name), "__qualname__", name)
        raise Unsupported(
            f"a gradient of its own ({called}) that cannot be traced: {error}"
        ) from error
    return placeholders, slopes


def _gradient_function(name: str) -> Any:
    """Return the Python function of the gradient; None if this process has none."""
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
    """Yield the functions that a function refers to."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if hasattr(content, "__code__"):
            yield content


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
    """Raise ImportModelError for a Keras model with its own training code."""
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
