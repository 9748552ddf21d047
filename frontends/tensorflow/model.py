"""The public face of the TensorFlow frontend.

`from_tensorflow` converts a Keras model, a function or a saved model to a forward `Graph`.
TensorFlow is imported when it is called.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.model_files import OpenedModel

if TYPE_CHECKING:
    import keras

OLDEST_KERAS = (3, 10)
"""The oldest Keras that is tested, hostile files and trained models; as in pyproject.toml."""

Inputs = Sequence[Any] | Mapping[str, Any]


def from_tensorflow(
    model_or_function: Any,
    example_inputs: Inputs,
    *,
    loss: "str | keras.losses.Loss | Callable[[Any, Any], Any] | None" = None,
    training: bool = True,
    trainable: Mapping[str, bool] | None = None,
) -> Graph:
    """Import a Keras model, a function of tensors, or the path of a saved one.

    `model_or_function` is a Keras model or layer, a `tf.function`, a plain function, a callable
    `tf.Module`, a signature of a loaded SavedModel, or a path: of a `.keras`, `.h5` or `.tflite`
    file, or of a SavedModel (its signature `serving_default`).

    `example_inputs` are the positional (sequence) or named (mapping) arguments; their shapes and
    types become the graph's. The graph's inputs carry the names of the model's inputs or of the
    function's parameters, and its params the variables' names (`conv1/kernel`); variables that are
    not trainable stay frozen.

    `training` is the argument of a Keras model's call: batch norm normalizes by the batch and
    updates its running statistics, dropout drops; layers that are not trainable stay as they are.

    `loss` "cross_entropy" (logits; labels: int64) or "mse" adds an input `target` for the first
    output and an output `loss`, as in every frontend. Losses of Keras, by name or as objects, and
    functions `loss(target, output)` are traced with the model; the penalties of Keras's
    regularizers are added. A function that returns one scalar is taken to return its loss.

    `trainable` maps names of weights of a `.tflite` file to whether they train. Raises
    ImportModelError naming everything that cannot be imported, with its place.
    """
    need_tensorflow("from_tensorflow")
    from pockengine.frontends.tensorflow.importer import import_subject
    from pockengine.frontends.tensorflow.lite.importer import from_lite
    from pockengine.frontends.tensorflow.saved import load

    if isinstance(subject := model_or_function, (str, Path)):
        if Path(subject).suffix == ".tflite":
            return from_lite(Path(subject), example_inputs, loss, trainable=trainable)
        subject = load(Path(subject))
    return import_subject(subject, example_inputs, loss, training)


def from_integers(
    model: Any,
    example_inputs: Inputs,
    loss: str | None = None,
    trainable: Mapping[str, bool] | None = None,
) -> Graph:
    """Import an int8 `.tflite` file with the ranges of its tensors, to train in int8.

    Inputs are i8 if the file's are integers; u8 inputs are reduced by 128. ImportModelError for a
    model without ranges.
    """
    need_tensorflow("from_tensorflow")
    if not isinstance(model, (str, Path)) or Path(model).suffix != ".tflite":
        raise ImportModelError(
            "ranges of integers come from a .tflite file in int8; for other models give "
            "pockengine.Int8 samples of the inputs"
        )
    from pockengine.frontends.tensorflow.lite.importer import from_lite

    return from_lite(Path(model), example_inputs, loss, integers=True, trainable=trainable)


def open_file(path: Path) -> OpenedModel:
    """Open a .keras, .h5 or .tflite file, or a SavedModel's folder; see `model_files.open_file`."""
    need_tensorflow(str(path))
    from pockengine.frontends.tensorflow.declared import open_tensorflow

    return open_tensorflow(path)


def need_tensorflow(caller: str) -> None:
    """Raise ImportModelError, saying what to install, if TensorFlow is missing."""
    try:
        import keras
        import tensorflow  # noqa: F401
    except ImportError as error:
        raise ImportModelError(
            f"{caller} needs TensorFlow, which is not installed; install it with "
            "`pip install tensorflow-cpu keras` (TensorFlow 2.18 or newer, Keras "
            f"{_dotted(OLDEST_KERAS)} or newer)"
        ) from error
    if _release(keras.__version__) < OLDEST_KERAS:
        oldest = _dotted(OLDEST_KERAS)
        raise ImportModelError(
            f"{caller} needs Keras {oldest} or newer, not {keras.__version__}, which is older than "
            f"what is tested; update it with `pip install 'keras>={oldest}'`"
        )
    if keras.backend.backend() != "tensorflow":
        raise ImportModelError(
            f"{caller} needs Keras on TensorFlow, not on {keras.backend.backend()}; set the "
            "environment variable KERAS_BACKEND=tensorflow before Keras is imported"
        )


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as (3, 10) of 3.10.0.dev1."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else ()
