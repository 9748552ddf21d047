"""Load models from disk: Keras's own files and SavedModels, with errors in the user's terms.

Keras and TensorFlow read the files themselves, but only after a check: files that name code or
other files, or would run more than arithmetic, are refused before loading.
"""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow.keras_files import checked_description
from pockengine.frontends.tensorflow.saved_graph import checked_saved_model, without_slots

SIGNATURE = "serving_default"


def load(path: Path) -> Any:
    """Return the Keras model of a .keras or .h5 file, or a SavedModel's default signature."""
    if path.is_dir():
        return _signature(path)
    if not path.is_file():
        raise ImportModelError(f"{path}: no such file or folder")
    if path.suffix not in (".keras", ".h5", ".hdf5"):
        raise ImportModelError(
            f"{path} is no model that is known by its name; give a .keras, .h5 or .tflite file, or "
            "the folder of a SavedModel"
        )
    if path.suffix == ".keras" and not zipfile.is_zipfile(path):
        raise ImportModelError(f"{path} is damaged: it is no zip file; save the model again")
    try:
        older = checked_description(path)
        if older is None:
            return keras.saving.load_model(path, compile=False, safe_mode=True)
        model = keras.saving.deserialize_keras_object(older, safe_mode=True)
        model.load_weights(path)
        return model
    except ImportModelError:
        raise
    except Exception as error:  # Keras raises whatever reading a damaged file raises
        raise ImportModelError(
            f"{path} cannot be read as a Keras model: {_short(error)}; save it again with "
            "model.save(...)"
        ) from error


def _signature(path: Path) -> Any:
    if not (path / "saved_model.pb").is_file():
        raise ImportModelError(f"{path} is no SavedModel: it holds no saved_model.pb")
    graph = without_slots(checked_saved_model(path))
    try:
        loaded = _loaded(path, graph.SerializeToString())
    except Exception as error:  # TensorFlow raises whatever reading a damaged file raises
        raise ImportModelError(
            f"{path} cannot be read as a SavedModel: {_short(error)}; save it again with "
            "tf.saved_model.save or model.export"
        ) from error
    signatures = loaded.signatures
    if SIGNATURE not in signatures:
        known = ", ".join(signatures) or "none"
        raise ImportModelError(
            f"{path} has no signature {SIGNATURE!r} (it has {known}); load it by "
            "tf.saved_model.load and give from_tensorflow the function that you mean"
        )
    function = signatures[SIGNATURE]
    unset = [variable.name for variable in function.variables if not variable.is_initialized()]
    if unset:
        raise ImportModelError(f"{path} is damaged: it has no values for {', '.join(unset[:3])}")
    function.loaded_object = loaded  # the variables live as long as the loaded object
    return function


def _loaded(path: Path, graph: bytes) -> Any:
    """Load a checked file, with the variables that it has."""
    options = tf.saved_model.LoadOptions(allow_partial_checkpoint=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "saved_model.pb").write_bytes(graph)
        Path(folder, "variables").symlink_to((path / "variables").resolve())
        return tf.saved_model.load(folder, options=options)


def _short(error: BaseException) -> str:
    cause = str(error).rpartition("Exception encountered: ")[2]  # Keras reports the location first
    lines = (line.strip() for line in cause.splitlines())
    return next((line for line in lines if line), type(error).__name__)[:200]
