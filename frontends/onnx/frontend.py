"""ONNX models and files; onnx is imported on first use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.integers import FLOAT
from pockengine.compiler.ir import Graph
from pockengine.frontends.choices import ChosenModel, is_onnx, opened
from pockengine.frontends.frontend import Arrays, Frontend
from pockengine.frontends.model_files import OpenedModel
from pockengine.frontends.onnx.model import (
    declared_inputs,
    from_onnx,
    input_names,
    to_initializers,
)
from pockengine.frontends.onnx.reference import reference
from pockengine.frontends.reference import Nudge, Reference


class OnnxFrontend(Frontend):
    """ONNX models as exported; example inputs only determine open shapes."""

    framework = "ONNX"
    rounding = FLOAT

    def recognizes(self, model: Any) -> bool:
        """Whether this is a model, its file, or one of them with choices."""
        return is_onnx(model)

    def open_file(self, path: Path) -> OpenedModel:
        """Open an .onnx file."""
        return OpenedModel(path, declared_inputs(path))

    def graph(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a model."""
        return _imported(model, inputs, loss, integers=False)

    def integers(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a quantized model with its integers."""
        return _imported(model, inputs, loss, integers=True)

    def reference(self, model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
        """Run the forward pass by ONNX Runtime or ONNX's evaluator, which have no gradients."""
        source = opened(model)
        return reference(source.model, {**_named(source, inputs), **source.constants}, loss, nudge)

    def tuned(self, model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        """Return the model with tuned initializers; save it by onnx.save."""
        return to_initializers(opened(model).model, graph, values)


def _imported(model: Any, inputs: Any, loss: Any, *, integers: bool) -> Graph:
    source = opened(model)
    shapes = {name: np.shape(x) for name, x in _named(source, inputs).items()}
    return from_onnx(
        source.model,
        loss=loss,
        shapes=shapes,
        constants=source.constants,
        trainable=source.trainable,
        integers=integers,
    )


def _named(source: ChosenModel, inputs: Any) -> Arrays:
    """Return example inputs by name: those in order are of the inputs that are no constants.

    An array alone is the example of the first one.
    """
    if isinstance(inputs, Mapping):
        return inputs
    if hasattr(inputs, "shape"):
        inputs = (inputs,)
    names = [name for name in input_names(source.model) if name not in source.constants]
    if len(inputs) > len(names):  # constants are among them
        names = input_names(source.model)
    return dict(zip(names, inputs, strict=False))


FRONTEND = OnnxFrontend()
