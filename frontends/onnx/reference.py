"""The model's loss on the example inputs, by ONNX Runtime or the standard's evaluator."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import LOSS
from pockengine.frontends.losses import with_loss_named
from pockengine.frontends.onnx.model import declared_inputs
from pockengine.frontends.probabilities import LEAST, takes_logarithm
from pockengine.frontends.reference import Nudge, Reference, draw_target

if TYPE_CHECKING:
    import onnx

IGNORED: Mapping[str, tuple[str, ...]] = {
    "GRU": ("activations", "clip"),
    "LSTM": ("activations", "clip", "input_forget"),
    "RNN": ("clip",),
}
"""Attributes of recurrent layers that the standard's evaluator ignores."""
LENGTHS = 4
"""The input of a recurrent layer with the lengths of sequences, which the evaluator ignores."""
DIRECTIONS_SINCE = (1, 23)
"""The release of ONNX from which the evaluator runs recurrent layers backwards."""


def reference(
    model: "str | Path | onnx.ModelProto", example_inputs: Any, loss: str | None, nudge: Nudge
) -> Reference | None:
    """Evaluate the model once; only its inputs are nudged.

    None if nothing here can run it, or if it rounds activations that are imported unrounded.
    """
    from pockengine.frontends.onnx.emulated_types import as_input, is_float
    from pockengine.frontends.onnx.file import read_model
    from pockengine.frontends.onnx.halves import full_type, has_halves, without_halves
    from pockengine.frontends.onnx.quantized import rounds_activations

    proto, folder = read_model(model)
    if rounds_activations(proto):
        return None
    types = {declared.name: np.dtype(declared.dtype) for declared in declared_inputs(model)}
    if has_halves(proto):
        model = without_halves(proto, folder)
    inputs = example_inputs
    if not isinstance(inputs, Mapping):
        inputs = dict(zip(types, inputs, strict=False))
    feed = {name: as_input(np.asarray(x), types[name]) for name, x in inputs.items()}
    feed = {name: nudge(x) if x.dtype == np.float32 else x for name, x in feed.items()}
    arrays = {name: x.astype(full_type(types[name])) for name, x in feed.items()}
    outputs = _by_runtime(model, arrays) or _by_evaluator(model, arrays)
    if outputs is None:
        return None
    if loss is None:
        named = with_loss_named(outputs, lambda x: x.ndim == 0 and is_float(x.dtype))
        return Reference(feed, float(named[LOSS]), None)
    scores = next(array for array in outputs.values() if is_float(array.dtype))
    return Reference(feed, _loss(scores, loss, feed), None)


def _by_runtime(model: Any, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """Run the model in ONNX Runtime unchanged; None if the runtime is missing, or cannot run it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    source = str(model) if isinstance(model, (str, Path)) else model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feed), strict=True))
    except Exception:  # it has its own exceptions for newer opsets, kinds and operators
        return None


def _by_evaluator(model: Any, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """Run the model in the standard's evaluator; None if that cannot, or ignores a setting."""
    from onnx.reference import ReferenceEvaluator

    from pockengine.frontends.onnx.file import read_model

    if any(map(_ignores, read_model(model)[0].graph.node)):
        return None
    try:
        evaluator = ReferenceEvaluator(str(model) if isinstance(model, Path) else model)
        return dict(zip(evaluator.output_names, evaluator.run(None, feed), strict=True))
    except Exception:  # its operators raise whatever NumPy does
        return None


def _ignores(node: "onnx.NodeProto") -> bool:
    """Whether the standard's evaluator ignores a setting of a recurrent layer."""
    from onnx import __version__

    if node.op_type not in IGNORED:
        return False
    release = tuple(map(int, re.findall(r"\d+", __version__)[:2]))
    attributes = {attribute.name: attribute for attribute in node.attribute}
    turned = "direction" in attributes and attributes["direction"].s != b"forward"
    return (
        any(name in attributes for name in IGNORED[node.op_type])
        or any(node.input[LENGTHS : LENGTHS + 1])
        or (turned and release < DIRECTIONS_SINCE)
    )


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
