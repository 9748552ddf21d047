"""The ONNX frontend as one of the doors; onnx is imported when they are passed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import CompileError
from pockengine.frontends.reference import Nudge, Reference

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class OnnxModel:
    """A model or its file, with what the user says beside it: see `from_onnx`."""

    model: Any
    constants: Arrays = field(default_factory=dict)
    trainable: Mapping[str, bool] = field(default_factory=dict)


def with_choices(model: Any, constants: Arrays | None, trainable: Mapping[str, bool] | None) -> Any:
    """Return an ONNX model with choices, where there are any; CompileError for another model."""
    if not constants and not trainable:
        return model
    if not is_onnx(model):
        raise CompileError(
            "constants= and trainable= are for ONNX models; freeze parameters of others in their "
            "framework, or by scheme="
        )
    given = _opened(model)
    return OnnxModel(
        given.model,
        {**given.constants, **(constants or {})},
        {**given.trainable, **(trainable or {})},
    )


def is_onnx(model: Any) -> bool:
    """Whether this is an ONNX model."""
    if isinstance(model, (str, Path)):
        return Path(model).suffix == ".onnx"
    return isinstance(model, OnnxModel) or type(model).__name__ == "ModelProto"


def enter(model: Any, inputs: Any, loss: Any, integers: bool = False) -> Graph:
    """Take the model as it was exported; example inputs only fix the shapes that it leaves open."""
    from pockengine.frontends.onnx.model import from_onnx

    given = _opened(model)
    shapes = {name: np.shape(x) for name, x in _named(given, inputs).items()}
    return from_onnx(
        given.model,
        loss=loss,
        shapes=shapes,
        constants=given.constants,
        trainable=given.trainable,
        integers=integers,
    )


def enter_integers(model: Any, inputs: Any, loss: Any) -> Graph:
    """Take a quantised model with its integers."""
    return enter(model, inputs, loss, integers=True)


def leave(model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
    """Return the model with tuned initializers; save it by onnx.save."""
    from pockengine.frontends.onnx.model import to_initializers

    return to_initializers(_opened(model).model, graph, values)


def reference(model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
    """Run the forward pass by ONNX Runtime or ONNX's evaluator, which have no gradients."""
    from pockengine.frontends.onnx.reference import reference

    given = _opened(model)
    return reference(given.model, {**_named(given, inputs), **given.constants}, loss, nudge)


def _opened(model: Any) -> OnnxModel:
    return model if isinstance(model, OnnxModel) else OnnxModel(model)


def _named(given: OnnxModel, inputs: Any) -> Arrays:
    """Return example inputs by name: those in order are of the inputs that are no constants."""
    from pockengine.frontends.onnx.model import input_names

    if isinstance(inputs, Mapping):
        return inputs
    names = [name for name in input_names(given.model) if name not in given.constants]
    if len(inputs) > len(names):  # constants are among them
        names = input_names(given.model)
    return dict(zip(names, inputs, strict=False))
