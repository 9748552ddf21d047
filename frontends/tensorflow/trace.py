"""Trace the user's model to one TensorFlow function of fixed shapes."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pockengine.errors import ImportModelError
from pockengine.frontends.dtypes import USE, find_dtype
from pockengine.frontends.faults import OURS, own_fault, theirs
from pockengine.frontends.tensorflow.losses import loss_name, target_spec, terms_of

Call = Callable[..., Any]
AUTOMATIC = re.compile(r"(keras_tensor|input_layer|input)(_\d+)?")
"""Names that Keras gives to inputs by counting."""
TRACEBACK_SKIPS = (
    "/site-packages/tensorflow/",
    "/site-packages/keras/",
    *OURS,
    "__autograph_generated_file",
)


@dataclass(frozen=True)
class TraceSubject:
    """A traced call: `call` takes tensors as the user passes them; `model` is a Keras model.

    `owner` has the variables, a Keras model only once it is built.
    """

    name: str
    call: Call
    model: Any = None
    owner: Any = None

    @property
    def variables(self) -> list[Any]:
        """Variables in the order of their owners."""
        return list(getattr(self.owner, "variables", ()))


@dataclass(frozen=True)
class Arguments:
    """The example inputs: the graph's names for them, and how the call takes them."""

    names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    call_args: tuple[Any, ...]
    """The call's arguments, one by one: an array each, or a mapping of some."""
    keys: tuple[str, ...] | None
    """Where the inputs are named ones: the names that the call knows them by."""

    def passed(self, subject: TraceSubject, tensors: Sequence[Any]) -> Any:
        """Call the subject with these tensors in place of the examples."""
        structured = subject.model is not None and not _takes_several(subject.model)
        waiting = iter(tensors)
        values = [_filled(value, waiting) for value in self.call_args]
        if self.keys is None or (structured and len(values) == 1):
            several = structured and len(values) > 1
            return theirs(subject.call, values) if several else theirs(subject.call, *values)
        named = dict(zip(self.keys, values, strict=True))
        return theirs(subject.call, named) if structured else theirs(subject.call, **named)


@dataclass(frozen=True)
class TracedModel:
    """A traced function and the names of its results, in order.

    `targets` are placeholders of the losses' targets, by the names of their inputs.
    """

    concrete: Any
    outputs: tuple[str, ...]
    targets: Mapping[str, Any]


def subject_of(model: Any, training: bool) -> TraceSubject:
    """Return how to call the user's object; ImportModelError if it cannot be called."""
    if is_keras_model(model):

        def call(*args: Any, **kwargs: Any) -> Any:
            return theirs(model, *args, **kwargs, training=training)

        return TraceSubject(model.name, call, model, model)
    if isinstance(model, tf.Module) and callable(model):
        return TraceSubject(type(model).__name__, tf.function(model.__call__), None, model)
    if isinstance(model, tf.types.experimental.ConcreteFunction):
        name = str(model.name).removeprefix("b'").strip("'")
        return TraceSubject("signature" if "signature" in name else name, model, None, model)
    if isinstance(model, tf.types.experimental.PolymorphicFunction):
        return TraceSubject(model.python_function.__name__, model)
    if callable(model):
        return TraceSubject(getattr(model, "__name__", "function"), tf.function(model))
    raise ImportModelError(
        f"from_tensorflow takes a Keras model, a function of tensors, or the path of a model, not "
        f"{type(model).__name__}"
    )


def is_keras_model(model: Any) -> bool:
    """Return whether this is a Keras model or layer."""
    import keras

    return isinstance(model, keras.layers.Layer)


def trace(subject: TraceSubject, arguments: Arguments, loss: Any) -> TracedModel:
    """Trace the call, and Keras's losses of its outputs where there are any.

    ImportModelError describes in the user's terms what TensorFlow cannot trace.
    """
    outputs: list[str] = []
    targets: dict[str, Any] = {}
    target_text: list[str] = []

    def forward(*tensors: Any) -> list[Any]:
        results = named_results(arguments.passed(subject, tensors))
        penalties = list(getattr(subject.model, "losses", ()))
        if loss is not None:
            terms = []
            for result in results.values():
                _give_rows(result, tensors)
            for term in terms_of(loss, list(results), subject.model):
                spec = target_spec(term.loss, results[term.output])
                targets[term.target] = tf.compat.v1.placeholder(spec.dtype, spec.shape)
                target_text[:] = [_target_text(term.loss, spec)]
                terms.append(term.of(targets[term.target], results[term.output]))
                target_text.clear()
            results["loss"] = tf.add_n(terms) if len(terms) > 1 else terms[0]
        if penalties:
            results["penalty"] = tf.add_n(penalties)
        outputs[:] = results
        return list(results.values())

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arguments.arrays]
    try:
        traceable = tf.function(forward, autograph=False)
        concrete = theirs(traceable.get_concrete_function, *specs)
    except ImportModelError:
        raise
    except Exception as error:  # tracing raises whatever the model's own code raises
        fault = own_fault(
            error, f"TensorFlow traced {subject.name}", "tensorflow", "tensorflow-cpu", "keras"
        )
        raise fault or _explained(error, subject.name, arguments, *target_text) from error
    return TracedModel(concrete, tuple(outputs), targets)


def _target_text(loss: Any, spec: tf.TensorSpec) -> str:
    """Describe the target that a loss is called with, in case that it does not take it."""
    return (
        f"the loss {loss_name(loss)} is called with a target of {spec.dtype.name} "
        f"{spec.shape.as_list()}: one for labels of classes has 'sparse' in its name, and gets "
        "int64 without the last dimension"
    )


def _explained(
    error: Exception, name: str, arguments: Arguments, target_text: str = ""
) -> ImportModelError:
    message, place = _message(error), _user_line(error)
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError) or "symbolic" in message:
        return ImportModelError(
            f"{name} decides by the values in a tensor ({message.split('. ')[0]}); a compiled "
            "model does the same steps for any data: use tf.where, or move the decision out of "
            f"the model{place}"
        )
    shapes = [tuple(array.shape) for array in arguments.arrays]
    return ImportModelError(
        f"{name} cannot be traced with example inputs of shape {shapes}: {message}; "
        f"{target_text or 'check that it runs on them'}{place}"
    )


def _message(error: BaseException) -> str:
    """Return the line that says what happened, without the frames that Keras and autograph add."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0] == "in user code:":
        return lines[-1]
    messages = [line for line in lines if not line.startswith("Exception encountered when calling")]
    return messages[0] if messages else repr(error)


def _user_line(error: BaseException) -> str:
    """Return where in the user's own files the error arose, if the traceback has it."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    traceback = error.__traceback__
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code.co_filename, str(traceback.tb_lineno)))
        traceback = traceback.tb_next
    for filename, line in reversed(frames):
        if not any(part in filename for part in TRACEBACK_SKIPS) and filename[0] != "<":
            return f" (at {filename}:{line})"
    return ""


def _give_rows(result: Any, inputs: Sequence[Any]) -> None:
    """Give a result of unknown rows those of the inputs, so that its target has a shape.

    A loop leaves them open, as recurrent layers of Keras 2 do.
    """
    if result.shape.rank and result.shape[0] is None and inputs and inputs[0].shape.rank:
        result.set_shape([inputs[0].shape[0], *result.shape[1:]])


def named_results(results: Any) -> dict[str, Any]:
    """Name tensors by their places: "output", "output.0", or by the keys of a mapping."""
    tensors: dict[str, Any] = {}

    def visit(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, Mapping):
            for key in value:
                visit((*path, str(key)), value[key])
        elif isinstance(value, (list, tuple)):
            names = getattr(value, "_fields", range(len(value)))
            for key, item in zip(names, value, strict=True):
                visit((*path, str(key)), item)
        elif value is not None:
            parts = path if path and not path[0].isdigit() else ("output", *path)
            tensors[".".join(parts)] = theirs(tf.convert_to_tensor, value)

    visit((), results)
    return tensors


def arguments_of(subject: TraceSubject, examples: Any) -> Arguments:
    """Check the example inputs, and name them."""
    if isinstance(examples, Mapping):
        keys: tuple[str, ...] | None = tuple(str(key) for key in examples)
        values = tuple(examples.values())
    elif isinstance(examples, (tuple, list)):
        keys, values = None, tuple(examples)
    else:
        keys, values = None, (examples,)
    own = keys if keys is not None else _names(subject, len(values))
    nested = any(isinstance(value, Mapping) for value in values)
    leaves = [
        leaf
        for name, value in zip(own, values, strict=True)
        for leaf in _leaves("" if nested and len(values) == 1 else name, value)
    ]
    names = tuple(name for name, _ in leaves)
    labels = range(len(leaves)) if keys is None and not nested else names
    arrays = tuple(
        _array(subject.name, key, value) for key, (_, value) in zip(labels, leaves, strict=True)
    )
    return Arguments(names, arrays, values, keys)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of an input, which may be a mapping, by the paths to them."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, item in value.items():
        yield from _leaves(f"{name}.{key}" if name else str(key), item)


def _filled(value: Any, tensors: Iterator[Any]) -> Any:
    """Return an input as the call takes it, with tensors in place of its arrays."""
    if not isinstance(value, Mapping):
        return next(tensors)
    return {key: _filled(item, tensors) for key, item in value.items()}


def _array(name: str, key: Any, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever an object's own conversion raises
        raise ImportModelError(
            f"example input {key!r} of {name} is a {type(value).__name__}, no array"
        ) from error
    if array.dtype.kind in "OSU":
        raise ImportModelError(
            f"example input {key!r} of {name} holds strings or objects; give the numbers that "
            "they are looked up to"
        )
    if array.dtype != np.uint8 and find_dtype(array.dtype) is None:
        raise ImportModelError(f"example input {key!r} of {name} is {array.dtype}; {USE}")
    if not array.size:
        raise ImportModelError(f"example input {key!r} of {name} has the empty shape {array.shape}")
    return array


def _names(subject: TraceSubject, count: int) -> tuple[str, ...]:
    """Name positional inputs: as the model's input layers or the call's parameters are named."""
    known = _layer_names(subject.model) or _parameter_names(subject)
    if len(known) == count and not any(AUTOMATIC.fullmatch(name) for name in known):
        return tuple(known)
    return ("input",) if count == 1 else tuple(f"input.{i}" for i in range(count))


def _layer_names(model: Any) -> list[str]:
    try:
        return [tensor.name.split(":")[0] for tensor in model.inputs]
    except (AttributeError, TypeError, ValueError):
        return []


def _parameter_names(subject: TraceSubject) -> list[str]:
    if isinstance(subject.call, tf.types.experimental.ConcreteFunction):
        return list(subject.call.structured_input_signature[1])
    function = subject.call if subject.model is None else subject.model.call
    function = getattr(function, "python_function", function)
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
    defaults = [p.name for p in parameters if p.default is not p.empty]
    return [name for name in names if name not in defaults]


def _takes_several(model: Any) -> bool:
    """Return whether the model's call takes its inputs one by one rather than as a structure."""
    import keras

    return not isinstance(model, (keras.Sequential, keras.Function))
