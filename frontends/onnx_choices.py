"""What a user says beside an ONNX model: which inputs are constants, what else trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.errors import CompileError

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
    given = opened(model)
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


def opened(model: Any) -> OnnxModel:
    """Return a model with its choices, none where it has none."""
    return model if isinstance(model, OnnxModel) else OnnxModel(model)
