"""Train a model of any framework for one step in the oracle, and compare the gradients.

ONNX has no gradients, so the slope of its reference evaluator's loss along our gradient is
compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.frontend import Source
from pockengine.frontends.reference import Reference
from pockengine.frontends.registry import find_source

LOSS_TOLERANCE = 1e-4
"""Relative."""
GRADIENT_TOLERANCE = 2e-3
"""Relative to the largest element of all gradients."""
SLOPE_TOLERANCE = 0.05
"""Relative; in float32 the difference of two losses has only a few digits."""
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A model, its example inputs, and its training loss."""

    model: Any
    inputs: Any
    loss: Any = "cross_entropy"


def compared(subject: Subject) -> str:
    """Return the differences from the framework, empty if there are none."""
    source = find_source(subject.model, subject.inputs)
    graph = source.graph(subject.loss)
    reference = source.reference(subject.loss, lambda array: array)
    assert reference is not None  # every model here has data
    loss, gradients = _step(graph, reference)
    if not np.isclose(loss, reference.loss, rtol=LOSS_TOLERANCE, atol=1e-6):
        return f"the loss is {loss}, the framework's {reference.loss}"
    if not gradients:
        return "nothing trains"
    if reference.gradients is None:
        return _wrong_slope(subject, source, graph, gradients)
    largest = max(float(np.abs(array).max()) for array in reference.gradients.values())
    for name, ours in gradients.items():
        theirs = reference.gradients.get(name, np.zeros_like(ours))
        error = float(np.abs(ours - theirs).max())
        if not error <= GRADIENT_TOLERANCE * largest:
            return f"the gradient of {name} is off by {error:.3g} of {largest:.3g}"
    return ""


def _step(graph: Graph, reference: Reference) -> tuple[float, dict[str, np.ndarray]]:
    """Return the loss, and the change of each weight, in the framework's order of dimensions."""
    step = compile_program(graph, Training(optimizer=Sgd())).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    before = {name: array.copy() for name, array in params.items()}
    feed = {**reference.feed, "lr": np.asarray(1, np.float32), "seed": np.asarray(0, np.int32)}
    loss = float(run(step, {value.name: feed[value.name] for value in step.inputs}, params)["loss"])
    moves = {}
    for name, param in graph.params.items():
        if param.trainable and name in params:
            order = param.permutation or tuple(range(params[name].ndim))
            moves[name] = (before[name] - params[name]).transpose(np.argsort(order))
    return loss, moves


def _wrong_slope(subject: Subject, source: Source, graph: Graph, gradients: Arrays) -> str:
    """Compare the length of our gradient with the slope of the framework's loss along it."""
    length = float(np.sqrt(sum(np.square(array).sum() for array in gradients.values())))
    step = 2e-3 / length**2  # changes the loss by a few thousandths

    def moved(sign: float) -> float:
        values = {}
        for name, array in gradients.items():
            param = graph.params[name]
            order = param.permutation or tuple(range(array.ndim))
            values[name] = (param.data + sign * step * array.transpose(order)).astype(np.float32)
        there = find_source(source.tuned(graph, values), subject.inputs)
        found = there.reference(subject.loss, lambda array: array)
        assert found is not None  # as before
        return found.loss

    slope = (moved(1.0) - moved(-1.0)) / (2 * step * length)
    if abs(slope - length) <= SLOPE_TOLERANCE * length:
        return ""
    return f"the gradient is {length:.4g} long, the loss's slope along it {slope:.4g}"
