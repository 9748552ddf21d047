"""TensorFlow's and Keras's models, and their files."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import NAMED, Optimizer
from pockengine.errors import CompileError
from pockengine.frontends.choices import ChosenModel, is_lite, opened
from pockengine.frontends.frontend import Arrays, Frontend, named_optimizer
from pockengine.frontends.model_files import OpenedModel
from pockengine.frontends.reference import Nudge, Reference
from pockengine.frontends.tensorflow.model import from_integers, from_tensorflow, open_file
from pockengine.frontends.tensorflow.optimizers import to_optimizer
from pockengine.frontends.tensorflow.recognize import is_tensorflow
from pockengine.frontends.tensorflow.weights import to_weights


class TensorFlowFrontend(Frontend):
    """Keras's models and layers, functions of TensorFlow, .keras, .h5, .tflite, SavedModels."""

    framework = "TensorFlow"

    def recognizes(self, model: Any) -> bool:
        """Whether this is TensorFlow's or Keras's; a path is, once its ending or folder is."""
        path = isinstance(model, (str, Path))
        return path or (isinstance(model, ChosenModel) and is_lite(model)) or is_tensorflow(model)

    def open_file(self, path: Path) -> OpenedModel:
        """Open a file of Keras or TFLite, or a SavedModel's folder."""
        return open_file(path)

    def graph(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a model."""
        source = opened(model)
        return from_tensorflow(source.model, inputs, loss=loss, trainable=source.trainable)

    def stated_loss(self, model: Any) -> Any:
        """Return the loss of `compile` that a Keras model or its file has."""
        from pockengine.frontends.tensorflow.declared import loss_of

        return loss_of(opened(model).model)

    def integers(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a quantized TFLite model with its integers."""
        source = opened(model)
        return from_integers(source.model, inputs, loss, source.trainable)

    def reference(self, model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
        """Return TensorFlow's loss and gradients."""
        from pockengine.frontends.tensorflow.reference import reference

        return reference(opened(model).model, inputs, loss, nudge)

    def quiet(self, model: Any, drawing: Collection[str]) -> AbstractContextManager[None]:
        """Turn dropout and noise off for a while."""
        from pockengine.frontends.tensorflow.reference import without_noise

        return without_noise(model)

    def optimizer(self, model: Any, requested: Any) -> Optimizer:
        """Convert an optimizer of Keras, or its name."""
        if isinstance(requested, str):
            import keras

            try:
                requested = keras.optimizers.get(requested)
            except ValueError as error:
                if requested.lower() in NAMED:  # Keras has no RAdam, for one
                    return named_optimizer(requested)
                raise CompileError(f"unknown optimizer {requested!r} of Keras") from error
        return (
            to_optimizer(requested)
            if hasattr(requested, "get_config")
            else named_optimizer(requested)
        )

    def tuned(self, model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        """Return a list for `model.set_weights` of a Keras model; else arrays by name."""
        tuned = to_weights(graph, values)
        if not hasattr(model, "set_weights"):
            return tuned
        from pockengine.frontends.tensorflow.variables import named_variables

        names = {id(variable): name for name, variable in named_variables(model.variables).items()}
        return [tuned.get(names.get(id(weight), ""), weight.numpy()) for weight in model.weights]


FRONTEND = TensorFlowFrontend()
