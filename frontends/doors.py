"""The frameworks' doors: whose model is this, how does it come in, how do its weights go back.

One row for each framework. A door imports its frontend, and that its framework, only when a model
comes by it; recognising a model imports nothing, as what is a framework's has imported it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import NAMED, Optimizer
from pockengine.compiler.quantize.integers import FIXED, FLOAT
from pockengine.errors import CompileError, ImportModelError
from pockengine.frontends.onnx import door as onnx_door
from pockengine.frontends.reference import Nudge, Reference

Arrays = Mapping[str, np.ndarray]
TENSORFLOW_FILES = (".h5", ".hdf5", ".keras", ".tflite")
"""A SavedModel is a folder."""


@dataclass(frozen=True)
class Door:
    """One framework: see the functions below for what each field takes and gives."""

    framework: str
    recognises: Callable[[Any], bool]
    enter: Callable[[Any, Any, Any], Graph]
    leave: Callable[[Any, Any, Graph, Arrays], Any]
    resize: Callable[[Any, Any, Mapping[str, int], int], Any] | None = None
    optimizer: Callable[[Any, Any], Optimizer] | None = None
    reference: Callable[[Any, Any, Any, Nudge], Reference | None] | None = None
    quiet: Callable[[Any], AbstractContextManager[None]] = lambda model: nullcontext()
    integers: Callable[[Any, Any, Any], Graph] | None = None
    rounding: str = FIXED
    opens: Callable[[Any], Any] = lambda model: model


@dataclass(frozen=True)
class Visitor:
    """A model with its example inputs, and the door that it came by."""

    door: Door
    model: Any
    inputs: Any

    def graph(self, loss: Any) -> Graph:
        """Import the model."""
        return self.door.enter(self.model, self.inputs, loss)

    def integers(self, loss: Any) -> Graph:
        """Import a model that is in int8, with its ranges; CompileError where it has none."""
        if self.door.integers is None:
            raise CompileError(
                f"a model of {self.door.framework} carries no ranges of integers; give "
                "pockengine.Int8 samples of its inputs"
            )
        return self.door.integers(self.model, self.inputs, loss)

    def resized(self, axes: Mapping[str, int], size: int) -> "Visitor":
        """Give the example inputs another size; CompileError where the door cannot."""
        if self.door.resize is None:
            raise CompileError(
                f"sizes= is for models of PyTorch and JAX; import each size of a "
                f"{self.door.framework} model on its own"
            )
        inputs = self.door.resize(self.model, self.inputs, axes, size)
        return Visitor(self.door, self.model, inputs)

    def reference(self, loss: Any, nudge: Nudge) -> Reference | None:
        """Return the framework's own loss and gradients on the example inputs, where it has any."""
        if self.door.reference is None:
            return None
        return self.door.reference(self.model, self.inputs, loss, nudge)

    def quiet(self) -> AbstractContextManager[None]:
        """Turn dropout off for a while, where the door can."""
        return self.door.quiet(self.model)

    def optimizer(self, given: Any) -> Optimizer:
        """Return our optimiser: one of ours, or what the framework's means."""
        if hasattr(given, "update") and hasattr(given, "init") and self.door.framework != "JAX":
            raise CompileError(
                "a transformation of optax is for JAX's models; give pockengine.Adam() or the "
                f"like, or an optimizer of {self.door.framework}"
            )
        if isinstance(given, str) and self.door.framework != "TensorFlow":
            return named_optimizer(given)
        foreign = not type(given).__module__.startswith("pockengine.")
        if (
            foreign
            and self.door.optimizer is not None
            and (hasattr(given, "init") or not hasattr(given, "update"))
        ):
            return self.door.optimizer(self.model, given)
        return named_optimizer(given)

    def tuned(self, graph: Graph, values: Arrays) -> Any:
        """Give tuned weights back in the framework's own form."""
        known = {name: data for name, data in values.items() if name in graph.params}
        return self.door.leave(self.model, self.inputs, graph, known)


def named_optimizer(given: Any) -> Optimizer:
    """Return an optimiser of ours as it is, or by its name with its defaults."""
    if isinstance(given, str):
        if given.lower() not in NAMED:
            raise CompileError(f"unknown optimizer {given!r}; known are {', '.join(NAMED)}")
        own: Optimizer = NAMED[given.lower()]()
        return own
    if isinstance(given, type) or not callable(getattr(given, "update", None)):
        raise CompileError(
            f"{given!r} is no optimizer that this model can have; give pockengine.Adam() or the "
            f"like, one of the model's framework, or a name: {', '.join(NAMED)}"
        )
    own = given
    return own


def find_door(model: Any, example_inputs: Any) -> Visitor:
    """Recognise a model; ImportModelError says what is known."""
    for door in DOORS:
        if door.recognises(model):
            return Visitor(door, door.opens(model), example_inputs)
    if isinstance(model, (str, Path)):
        raise ImportModelError(
            f"{model} is no file of a model: .onnx, {', '.join(TENSORFLOW_FILES)}, or the folder "
            "of a SavedModel"
        )
    known = ", ".join(door.framework for door in DOORS)
    hint = "; a plain function is taken for JAX's once jax is imported" if callable(model) else ""
    raise ImportModelError(
        f"a {type(model).__name__} is no model that pockengine.compile knows ({known}){hint}"
    )


def framework_arrays(graph: Graph, values: Arrays) -> dict[str, np.ndarray]:
    """Return arrays by name, in the framework's own order of dimensions."""
    arrays = {}
    for name, array in values.items():
        param = graph.params.get(name)
        if param is not None:
            back = None if param.permutation is None else np.argsort(param.permutation)
            arrays[name] = np.array(array if back is None else array.transpose(back), order="C")
    return arrays


def _from_torch(model: Any, inputs: Any, loss: Any) -> Graph:
    from pockengine.frontends.torch.model import from_torch

    return from_torch(model, inputs, loss=loss)


def _integers_of_torch(model: Any, inputs: Any, loss: Any) -> Graph:
    from pockengine.frontends.torch.model import from_torch

    return from_torch(model, inputs, loss=loss, integers=True)


def _to_state_dict(model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
    """The whole state_dict of the module."""
    from pockengine.frontends.torch.model import to_state_dict

    return to_state_dict(graph, values, model)


def _resize_torch(model: Any, inputs: Any, axes: Mapping[str, int], size: int) -> Any:
    from pockengine.frontends.torch.model import resize_examples

    return resize_examples(model, inputs, axes, size)


def _torch_reference(model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference:
    from pockengine.frontends.torch.reference import reference

    return reference(model, inputs, loss, nudge)


def _quiet_torch(model: Any) -> AbstractContextManager[None]:
    from pockengine.frontends.torch.reference import without_dropout

    return without_dropout(model)


def _is_torch(model: Any) -> bool:
    torch = sys.modules.get("torch")
    kinds = () if torch is None else (torch.nn.Module, torch.export.ExportedProgram)
    return isinstance(model, kinds)


def _torch_module(model: Any) -> Any:
    """An exported program is taken as the module that it makes."""
    return model if hasattr(model, "forward") else model.module()


def _from_tensorflow(model: Any, inputs: Any, loss: Any) -> Graph:
    from pockengine.frontends.tensorflow import from_tensorflow

    return from_tensorflow(model, inputs, loss=loss)


def _integers_of_tensorflow(model: Any, inputs: Any, loss: Any) -> Graph:
    from pockengine.frontends.tensorflow.model import from_integers

    return from_integers(model, inputs, loss)


def _to_variables(model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
    """What `model.set_weights` takes, for a Keras model; else arrays by the variables' names."""
    from pockengine.frontends.tensorflow import to_weights
    from pockengine.frontends.tensorflow.variables import named_variables

    tuned = to_weights(graph, values)
    if not hasattr(model, "set_weights"):
        return tuned
    names = {id(variable): name for name, variable in named_variables(model.variables).items()}
    return [tuned.get(names.get(id(held), ""), held.numpy()) for held in model.weights]


def _torch_optimizer(model: Any, optimizer: Any) -> Optimizer:
    from pockengine.frontends.torch.optimizers import to_optimizer

    return to_optimizer(model, optimizer)


def _keras_optimizer(model: Any, optimizer: Any) -> Optimizer:
    from pockengine.frontends.tensorflow import to_optimizer

    if isinstance(optimizer, str):
        import keras

        try:
            optimizer = keras.optimizers.get(optimizer)
        except ValueError as error:
            if optimizer.lower() in NAMED:  # Keras has no RAdam, for one
                return named_optimizer(optimizer)
            raise CompileError(f"unknown optimizer {optimizer!r} of Keras") from error
    if not hasattr(optimizer, "get_config"):
        return named_optimizer(optimizer)
    return to_optimizer(optimizer)


def _tensorflow_reference(model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
    from pockengine.frontends.tensorflow.reference import reference

    return reference(model, inputs, loss, nudge)


def _quiet_tensorflow(model: Any) -> AbstractContextManager[None]:
    from pockengine.frontends.tensorflow.reference import without_noise

    return without_noise(model)


def _is_tensorflow(model: Any) -> bool:
    from pockengine.frontends.tensorflow import is_tensorflow

    if isinstance(model, (str, Path)):
        return Path(model).suffix in TENSORFLOW_FILES or Path(model).is_dir()
    return is_tensorflow(model)


def _from_jax(model: Any, inputs: Any, loss: Any) -> Graph:
    from pockengine.frontends.jax import from_jax

    return from_jax(model, inputs, loss=loss)


def _to_pytree(model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
    """The pytree that was given, or the nnx module, with tuned leaves."""
    from pockengine.frontends.jax import parameters_of, to_pytree

    return to_pytree(graph, values, parameters_of(model, inputs))


def _resize_jax(model: Any, inputs: Any, axes: Mapping[str, int], size: int) -> Any:
    from pockengine.frontends.jax import resize_examples

    return resize_examples(model, inputs, axes, size)


def _jax_reference(model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
    from pockengine.frontends.jax.reference import reference

    return reference(model, inputs, loss, nudge)


def _optax_optimizer(model: Any, given: Any) -> Optimizer:
    from pockengine.frontends.jax.optimizers import is_optax, to_optimizer

    return to_optimizer(given) if is_optax(given) else named_optimizer(given)


def _is_jax(model: Any) -> bool:
    from pockengine.frontends.jax import is_jax

    return is_jax(model)


def step_visitor(step: Callable[..., Any], inputs: Any, carried: int) -> Visitor:
    """Return the door for a whole step of JAX: a single pytree goes back, or a tuple of them."""
    from pockengine.frontends.jax import carried_of, from_jax, to_pytree

    def enter(step: Any, inputs: Any, loss: Any) -> Graph:
        return from_jax(step, inputs, carried=carried)

    def leave(step: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        trees = carried_of(step, inputs, carried)
        if carried == 1:
            return to_pytree(graph, values, *trees.values())
        return tuple(to_pytree(graph, values, tree, name) for name, tree in trees.items())

    return Visitor(Door("JAX", lambda model: False, enter, leave), step, inputs)


DOORS: Sequence[Door] = (
    Door(
        "PyTorch",
        _is_torch,
        _from_torch,
        _to_state_dict,
        _resize_torch,
        _torch_optimizer,
        reference=_torch_reference,
        quiet=_quiet_torch,
        integers=_integers_of_torch,
        rounding=FLOAT,
        opens=_torch_module,
    ),
    Door(
        "ONNX",
        onnx_door.is_onnx,
        onnx_door.enter,
        onnx_door.leave,
        reference=onnx_door.reference,
        integers=onnx_door.enter_integers,
        rounding=FLOAT,
    ),
    Door(
        "TensorFlow",
        _is_tensorflow,
        _from_tensorflow,
        _to_variables,
        optimizer=_keras_optimizer,
        reference=_tensorflow_reference,
        quiet=_quiet_tensorflow,
        integers=_integers_of_tensorflow,
    ),
    # last: it takes any function
    Door("JAX", _is_jax, _from_jax, _to_pytree, _resize_jax, _optax_optimizer, _jax_reference),
)
"""In the order in which they are asked."""
