"""Open a file of Keras, TFLite or a SavedModel with its input declarations."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.errors import ImportModelError
from pockengine.frontends.model_files import Declared, OpenedModel
from pockengine.frontends.tensorflow.saved import load
from pockengine.frontends.tensorflow.stated_loss import compiled_loss, stated_loss


def open_tensorflow(path: Path) -> OpenedModel:
    """Return a Keras model or a signature, once it is loaded; a TFLite file stays a path."""
    if path.suffix == ".tflite":
        return OpenedModel(path, _of_lite(path))
    model = load(path)
    if path.is_dir():
        specs = model.structured_input_signature[1]
        inputs = tuple(_declared(name, spec) for name, spec in specs.items())
        return OpenedModel(model, inputs, loss=stated_loss(path, partial(_outputs, model)))
    taken = getattr(model, "inputs", None)
    if not taken:
        raise ImportModelError(
            f"{path} does not say what inputs its model takes; give it to pockengine.compile with "
            "example inputs, or call it once before it is saved"
        )
    declared = tuple(_declared(spec.name, spec) for spec in taken)
    loss = stated_loss(path, partial(_outputs, model))
    return OpenedModel(model, declared, named=False, loss=loss)


def loss_of(model: Any) -> Any:
    """Return the loss that a Keras model or the file of one states; None without one."""
    if not isinstance(model, (str, Path)):
        return compiled_loss(model, _outputs(model))
    path = Path(model)
    return None if path.suffix == ".tflite" else stated_loss(path, lambda: _outputs(load(path)))


def _outputs(model: Any) -> Sequence[str]:
    """Return the names of a model's outputs, in any order if it is a signature."""
    if hasattr(model, "structured_outputs"):
        return sorted(model.structured_outputs)
    # a Sequential model has one output, and no names
    return getattr(model, "output_names", ["output"])


def _declared(name: str, spec: Any) -> Declared:
    """Take the name, shape and type of TensorFlow's or Keras's description."""
    dtype = getattr(spec.dtype, "as_numpy_dtype", spec.dtype)
    return Declared(name, tuple(spec.shape), np.dtype(dtype))


def _of_lite(path: Path) -> tuple[Declared, ...]:
    """Leave the batch open: a model for one sample is imported for any number of them."""
    from pockengine.frontends.tensorflow.lite.file import read_lite

    model = read_lite(path)
    inputs = []
    for number in model.main.inputs:
        tensor = model.main.tensors[number]
        integer = tensor.kind in ("INT32", "INT64") and not tensor.quantized
        dtype = np.dtype(tensor.kind.lower() if integer else np.float32)
        sizes = [None if i in {0, *tensor.open} else n for i, n in enumerate(tensor.shape)]
        inputs.append(Declared(model.name_of(number), tuple(sizes), dtype))
    return tuple(inputs)
