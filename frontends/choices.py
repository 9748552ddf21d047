"""User choices for an ONNX or TFLite model: constant inputs, and trained weights."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import CompileError, ImportModelError
from pockengine.frontends.problems import listed

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


class Decisions:
    """Which weights of a file train: the user's choice, else all but those with a reason not to."""

    def __init__(self, chosen: Mapping[str, bool]) -> None:
        """Take the user's choices by name."""
        self.chosen = chosen
        self.frozen: dict[str, list[str]] = {}

    def decide(self, name: str, reason: str) -> bool:
        """Whether a weight trains, which does not for a reason, if any."""
        if name in self.chosen:
            return self.chosen[name]
        if reason:
            self.frozen.setdefault(reason, []).append(name)
        return not reason

    def check_among(self, names: Collection[str], what: str) -> None:
        """Raise ImportModelError for a choice that is none of these names."""
        for name in self.chosen:
            if name not in names:
                raise ImportModelError(
                    f"{name!r} (trainable=, --trainable, --frozen) is no {what}; it has "
                    f"{listed(list(names)) or 'none'}"
                )

    def tell(self, graph: Graph, *notes: str) -> None:
        """Summarize in one line the weights that do not train, after notes, unless all do."""
        read = {why: [n for n in self.frozen[why] if n in graph.params] for why in self.frozen}
        parts = [f"{listed(names)} do not ({why})" for why, names in read.items() if names]
        if notes or parts:
            count = sum(param.trainable for param in graph.params.values())
            warnings.warn(
                f"{graph.name}: {count} weights train; {'; '.join([*notes, *parts])}. To change "
                "it, say trainable={name: True or False}, or --trainable or --frozen NAME",
                stacklevel=6,
            )
