"""User choices for an ONNX or TFLite model: constant inputs, and trained weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.errors import CompileError

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ChosenModel:
    """A model or its file, with the user's choices.

    `constants` are the values of ONNX inputs, `trainable` says whether weights train, by name; see
    `from_onnx` and `from_lite`.
    """

    model: Any
    constants: Arrays = field(default_factory=dict)
    trainable: Mapping[str, bool] = field(default_factory=dict)


def with_choices(model: Any, constants: Arrays | None, trainable: Mapping[str, bool] | None) -> Any:
    """Return a model with choices, if any; CompileError for a model of another framework."""
    if not constants and not trainable:
        return model
    if not is_onnx(model) and (constants or not is_lite(model)):
        raise CompileError(
            "constants= is for ONNX models, and trainable= for those of ONNX and TFLite; freeze "
            "parameters of others in their framework, or by scheme="
        )
    source = opened(model)
    return ChosenModel(
        source.model,
        {**source.constants, **(constants or {})},
        {**source.trainable, **(trainable or {})},
    )


def is_onnx(model: Any) -> bool:
    """Whether this is an ONNX model."""
    source = opened(model).model
    return _has_ending(source, ".onnx") or type(source).__name__ == "ModelProto"


def is_lite(model: Any) -> bool:
    """Whether this is a TFLite file."""
    return _has_ending(opened(model).model, ".tflite")


def _has_ending(model: Any, ending: str) -> bool:
    return isinstance(model, (str, Path)) and Path(model).suffix == ending


def opened(model: Any) -> ChosenModel:
    """Return a model with its choices; empty ones by default."""
    return model if isinstance(model, ChosenModel) else ChosenModel(model)
