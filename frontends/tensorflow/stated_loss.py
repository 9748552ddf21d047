"""The training loss of a Keras model: that of `compile`, stored by `save`.

SavedModels have one where Keras 2 wrote them. Keras's own code that reads it back is not called: a
file may only name losses of `keras.losses`, and those that the user has registered in this process.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pockengine.errors import ImportModelError

OLD_REDUCTIONS = {"auto": "sum_over_batch_size"}
"""Keras 2's names of Keras 3's settings."""
METADATA = "keras_metadata.pb"
"""The file of a SavedModel of Keras 2: a list of objects, each with its path and words in JSON."""
OBJECT, PATH, WORDS = 1, 3, 5
"""Numbers of its fields; Keras 3 has no code that reads it."""


def stated_loss(path: Path, outputs: Callable[[], Sequence[str]]) -> Any:
    """Return the loss of a checked file, in the form of `from_tensorflow`.

    `outputs` returns the names of the model's outputs, in its order; those of a SavedModel are in
    any. None if the file has no loss. A loss that is not known here is returned as its name, which
    the import refuses, so that another one can be given. A single loss judges every output.
    """
    config, model = _training(path)
    loss = _read(path, config.get("loss"))
    if loss is None:
        return None
    own = [end[0] for end in model.get("output_layers", ())]
    return _of_outputs(loss, _plain(config.get("loss_weights")), own or outputs(), bool(model))


def compiled_loss(model: Any, outputs: Sequence[str]) -> Any:
    """Return the loss by which a Keras model in memory was compiled; None without one."""
    loss = getattr(model, "loss", None) if isinstance(model, keras.Model) else None
    if loss is None:
        return None
    weights = _plain((model.get_compile_config() or {}).get("loss_weights"))
    return _of_outputs(list(loss) if isinstance(loss, tuple) else loss, weights, outputs, False)


def _of_outputs(loss: Any, weights: Any, outputs: Sequence[str], ordered: bool) -> Any:
    """Return a loss for each output, with its weight; `outputs` may be in any order if not so."""
    if isinstance(loss, (list, Mapping)) and len(loss) == len(outputs) == 1:
        (loss,) = loss.values() if isinstance(loss, Mapping) else loss
    if len(outputs) == 1:
        return _weighted(loss, _only(weights))
    if not isinstance(loss, (list, Mapping)):
        loss = [loss] * len(outputs)
    if isinstance(loss, list):
        if not isinstance(weights, Mapping) and not ordered:
            factors = weights if isinstance(weights, list) else [None] * len(loss)
            return [_weighted(*pair) for pair in zip(loss, factors, strict=True)]
        loss = dict(zip(outputs, loss, strict=True))
    if isinstance(weights, list):
        weights = dict(zip(outputs, weights, strict=True))
    weights = weights or {}
    return {name: _weighted(one, weights.get(name)) for name, one in loss.items()}


def _training(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what the file keeps of `compile`'s arguments, and a SavedModel's own description.

    Both are empty if the file has none.
    """
    if path.is_dir():
        words = _root_of(path / METADATA)
        training, model = words.get("training_config"), words.get("config")
        return _mapping(training), _mapping(model)
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return _mapping(json.loads(archive.read("config.json")).get("compile_config")), {}
    with h5py.File(path, "r") as file:
        return _mapping(json.loads(file.attrs.get("training_config", "null"))), {}


def _mapping(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {}


def _root_of(path: Path) -> Mapping[str, Any]:
    """Return what a SavedModel of Keras 2 says of its model; nothing if it is of another."""
    if not path.is_file():
        return {}
    try:
        for number, content in _fields(path.read_bytes()):
            fields = dict(_fields(content)) if number == OBJECT else {}
            if fields.get(PATH) == b"root":
                return _mapping(json.loads(fields[WORDS]))
    except (DecodeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ImportModelError(
            f"{path} is damaged: {error}; save the model again, or remove the file and give a loss"
        ) from error
    return {}


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message by their numbers."""
    message = Empty()
    message.ParseFromString(content)
    for field in UnknownFieldSet(message):
        yield field.field_number, field.data


def _plain(part: Any) -> Any:
    """Return a list for a tuple as Keras writes one."""
    if isinstance(part, Mapping) and part.get("class_name") == "__tuple__":
        return part.get("items")
    return part


def _only(weights: Any) -> Any:
    if isinstance(weights, Mapping):
        weights = list(weights.values())
    return weights[0] if isinstance(weights, list) and weights else weights


def _weighted(loss: Any, weight: Any) -> Any:
    """Return a loss, as a pair with its weight where that is not 1."""
    return loss if loss is None or weight in (None, 1) else (loss, float(weight))


def _read(path: Path, part: Any) -> Any:
    """Return one loss, or a list or dict of them, of its description."""
    part = _plain(part)
    if isinstance(part, list):
        return [_read(path, one) for one in part]
    if isinstance(part, str):
        return keras.saving.get_registered_object(part) or part
    if not isinstance(part, Mapping):
        return None
    if "class_name" not in part:
        return {name: _read(path, one) for name, one in part.items()}
    name, config = part["class_name"], part.get("config")
    if name == "function":
        return _read(path, config)
    known = keras.saving.get_registered_object(str(part.get("registered_name") or name))
    if known is not None:
        return known.from_config(config)
    return _own(path, str(name), config if isinstance(config, Mapping) else {})


def _own(path: Path, name: str, config: Mapping[str, Any]) -> Any:
    """Return a loss of Keras itself, or the name of another."""
    kind = getattr(keras.losses, name, None)
    if not isinstance(kind, type) or not issubclass(kind, keras.losses.Loss):
        return name
    settings = {key: value for key, value in config.items() if key not in ("fn", "dtype")}
    settings["reduction"] = OLD_REDUCTIONS.get(
        str(settings.get("reduction")), settings.get("reduction")
    )
    try:
        return kind(**settings)
    except (TypeError, ValueError) as error:
        raise ImportModelError(
            f"{path}: its loss {name} cannot be made of {dict(config)}: {error}; give a loss by "
            "loss=, or --loss"
        ) from error
