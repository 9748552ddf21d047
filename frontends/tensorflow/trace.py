"""Trace what the user gives to one TensorFlow function of fixed shapes.

Keras models, `tf.function`s, plain functions and signatures of SavedModels all become a
ConcreteFunction whose results and variables have names.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pockengine.errors import ImportModelError

Call = Callable[..., Any]
AUTOMATIC = re.compile(r"(keras_tensor|input_layer|input)(_\d+)?")
"""Names that Keras gives to inputs by counting."""
TRACEBACK_SKIPS = ("/tensorflow/", "/keras/", "/frontends/tensorflow/")


@dataclass(frozen=True)
class Subject:
    """What is traced: `call` takes tensors as the user passes them; `model` is a Keras model."""

    name: str
    call: Call
    model: Any = None
    variables: Sequence[Any] = ()


@dataclass(frozen=True)
class Arguments:
    """The example inputs: the graph's names for them, and how the call takes them."""

    names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    keys: tuple[str, ...] | None
    """Where the inputs are named ones: the names that the call knows them by."""

    def passed(self, subject: Subject, tensors: Sequence[Any]) -> Any:
        """Call the subject with these tensors in place of the examples."""
        if self.keys is None:
            if subject.model is not None and len(tensors) > 1 and not _takes_several(subject.model):
                return subject.call(list(tensors))
            return subject.call(*tensors)
        named = dict(zip(self.keys, tensors, strict=True))
        if subject.model is not None and not _takes_several(subject.model):
            return subject.call(named)
        return subject.call(**named)


@dataclass(frozen=True)
class Traced:
    """A traced function and the names of its results, in order; `inputs` counts the examples.

    Inputs behind the examples are the loss's target.
    """

    concrete: Any
    outputs: tuple[str, ...]


def subject_of(given: Any, training: bool) -> Subject:
    """Say how to call what the user gave; ImportModelError when it cannot be called."""
    if is_keras_model(given):

        def call(*args: Any, **kwargs: Any) -> Any:
            return given(*args, **kwargs, training=training)

        return Subject(given.name, call, given, given.variables)
    if isinstance(given, tf.Module) and callable(given):
        return Subject(type(given).__name__, tf.function(given.__call__), None, given.variables)
    if isinstance(given, tf.types.experimental.ConcreteFunction):
        name = str(given.name).removeprefix("b'").strip("'")
        return Subject("signature" if "signature" in name else name, given, None, given.variables)
    if isinstance(given, tf.types.experimental.PolymorphicFunction):
        return Subject(given.python_function.__name__, given)
    if callable(given):
        return Subject(getattr(given, "__name__", "function"), tf.function(given))
    raise ImportModelError(
        f"from_tensorflow takes a Keras model, a function of tensors, or the path of a model, not "
        f"{type(given).__name__}"
    )


def is_keras_model(given: Any) -> bool:
    """Return whether this is a Keras model or layer."""
    import keras

    return isinstance(given, keras.layers.Layer)


def trace(
    subject: Subject,
    arguments: Arguments,
    loss: Call | None,
    target: Callable[[Any], tf.TensorSpec] | None,
) -> Traced:
    """Trace the call, and `loss(target, first output)` where a loss is given.

    ImportModelError tells in the user's terms what TensorFlow cannot trace.
    """
    outputs: list[str] = []

    def forward(*tensors: Any) -> list[Any]:
        count = len(arguments.arrays)
        results = named_results(arguments.passed(subject, tensors[:count]))
        penalties = list(getattr(subject.model, "losses", ()))
        if loss is not None:
            results["loss"] = loss(tensors[count], next(iter(results.values())))
        if penalties:
            results["penalty"] = tf.add_n(penalties)
        outputs[:] = results
        return list(results.values())

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arguments.arrays]
    try:
        if target is not None:
            specs.append(target(_first_spec(subject, arguments, specs)))
        concrete = tf.function(forward, autograph=False).get_concrete_function(*specs)
    except ImportModelError:
        raise
    except Exception as error:  # tracing raises whatever the model's own code raises
        raise _explained(error, subject.name, arguments) from error
    return Traced(concrete, tuple(outputs))


def _first_spec(subject: Subject, arguments: Arguments, specs: Sequence[Any]) -> Any:
    """Return shape and type of the first output."""

    def forward(*tensors: Any) -> list[Any]:
        return list(named_results(arguments.passed(subject, tensors)).values())

    concrete = tf.function(forward, autograph=False).get_concrete_function(*specs)
    return concrete.outputs[0]


def _explained(error: Exception, name: str, arguments: Arguments) -> ImportModelError:
    place = _user_line(error)
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError) or "symbolic" in str(error):
        return ImportModelError(
            f"{name} decides by the values in a tensor ({_first_line(error)}); a compiled model "
            f"does the same steps for any data: use tf.where, or move the decision out of the model"
            f"{place}"
        )
    shapes = [tuple(array.shape) for array in arguments.arrays]
    return ImportModelError(
        f"{name} cannot be traced with example inputs of shape {shapes}: {_first_line(error)}; "
        f"check that it runs on them{place}"
    )


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def _user_line(error: BaseException) -> str:
    """Return where in the user's own files the error arose, as far as the traceback tells."""
    traceback, place = error.__traceback__, ""
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if not any(part in filename for part in TRACEBACK_SKIPS) and not filename.startswith("<"):
            place = f" (at {filename}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return place


def named_results(results: Any) -> dict[str, Any]:
    """Name tensors by their places: "output", "output.0", or by the keys of a mapping."""
    found: dict[str, Any] = {}

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
            found[".".join(parts)] = tf.convert_to_tensor(value)

    visit((), results)
    return found


def arguments_of(subject: Subject, given: Any) -> Arguments:
    """Check the example inputs, and name them."""
    if isinstance(given, Mapping):
        keys: tuple[str, ...] | None = tuple(str(key) for key in given)
        values = tuple(given.values())
    elif isinstance(given, (tuple, list)):
        keys, values = None, tuple(given)
    else:
        keys, values = None, (given,)
    arrays = tuple(
        _array(subject.name, key, value)
        for key, value in zip(keys or range(len(values)), values, strict=True)
    )
    names = keys if keys is not None else _names(subject, len(values))
    return Arguments(names, arrays, keys)


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
    if array.dtype not in (np.float32, np.int32, np.int64, np.bool_):
        raise ImportModelError(
            f"example input {key!r} of {name} is {array.dtype}; use float32, int32, int64 or bool"
        )
    if not array.size:
        raise ImportModelError(f"example input {key!r} of {name} has the empty shape {array.shape}")
    return array


def _names(subject: Subject, count: int) -> tuple[str, ...]:
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


def _parameter_names(subject: Subject) -> list[str]:
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

    return not isinstance(model, (keras.Sequential, keras.src.models.functional.Functional))
