"""ONNX's own loss on the example inputs, by its reference evaluator; it has no gradients."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.frontends.onnx.model import input_names
from pockengine.frontends.probabilities import LEAST, takes_logarithm
from pockengine.frontends.reference import Nudge, Reference, draw_target

if TYPE_CHECKING:
    import onnx


def reference(
    model: "str | Path | onnx.ModelProto", example_inputs: Any, loss: str | None, nudge: Nudge
) -> Reference:
    """Evaluate the model once; only its inputs are nudged."""
    from onnx.reference import ReferenceEvaluator

    inputs = example_inputs
    if not isinstance(inputs, Mapping):
        inputs = dict(zip(input_names(model), inputs, strict=False))
    feed = {name: np.asarray(x) for name, x in inputs.items()}
    feed = {name: nudge(x) if x.dtype == np.float32 else x for name, x in feed.items()}
    evaluator = ReferenceEvaluator(str(model) if isinstance(model, Path) else model)
    outputs = dict(zip(evaluator.output_names, evaluator.run(None, feed), strict=True))
    if loss is None:
        return Reference(feed, float(outputs["loss"]), None)
    scores = next(array for array in outputs.values() if array.dtype == np.float32)
    return Reference(feed, _loss(scores, loss, feed), None)


def _loss(scores: np.ndarray, loss: str, feed: dict[str, np.ndarray]) -> float:
    first = np.asarray(scores, np.float64)
    feed["target"] = draw_target(loss, first.shape)
    if loss == "mse":
        return float(np.square(first - feed["target"]).mean())
    if takes_logarithm(loss, first):
        first = np.log(np.maximum(first, LEAST))
    shifted = first - first.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-np.take_along_axis(logs, feed["target"][:, None], 1).mean())
