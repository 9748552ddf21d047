"""Measurements of a frontend's graph, and the comparison with the model in our own ops."""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph, Node
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops import lookup
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.tests.zoo.common import LR, MODELS, MOMENTUM, batches
from pockengine.tests.zoo.common_reference import REFERENCE

DEVICE = "rpi4"
"""The device whose kernels are counted: fusion depends on the backend and the device."""
WRAPPED, FILLED = Counter({"elementwise": 1}), Counter({"elementwise": 1})
EXTRA = {
    ("jax", "transformer"): WRAPPED + FILLED,
    ("keras", "transformer"): WRAPPED,
    ("onnx", "transformer"): WRAPPED,
}
"""Kernels that a framework's semantics needs beyond PyTorch's: negative indices count from the end,
and in JAX an index out of range gives NaN."""


@dataclass(frozen=True)
class Measured:
    """The first step's logits, ten losses, and the number of kernels of each kind per step."""

    logits: list[list[float]]
    losses: list[float]
    ops: dict[str, int]


def measure(model: str, graph: Graph) -> Measured:
    """Train a frontend's graph with the whole pipeline and our oracle."""
    training = Training(optimizer=Sgd(momentum=MOMENTUM))
    backend = CBackend(load_device(DEVICE))
    step = compile_program(graph, training, target=backend.target()).entries["train"].graph
    (name,) = (value.name for value in graph.inputs if value.name != "target")
    type_ = graph.input(name).type
    params = {key: param.data.copy() for key, param in step.params.items()}
    losses, logits = [], None
    for data, labels in batches(model):
        if data.ndim == 4 and type_.shape[1] == 3:  # channels first
            data = data.transpose(0, 3, 1, 2)
        feed = {name: data.astype(type_.dtype.numpy), "target": labels, "lr": np.float32(LR)}
        found = run(step, {key: np.asarray(array) for key, array in feed.items()}, params)
        losses.append(float(found["loss"]))
        if logits is None:
            logits = next(array for key, array in found.items() if key != "loss")
    assert logits is not None
    return Measured(logits.tolist(), losses, dict(sorted(kernel_counts(step).items())))


def kernel_counts(graph: Graph) -> Counter[str]:
    """Count kernels; a fusion counts as its anchor, or as elementwise.

    Transposing an input to our order of dimensions does not count, since frameworks differ in it by
    design. Neither do reshapes, which cost nothing.
    """
    kinds: Counter[str] = Counter()
    for node in graph.nodes:
        of_input = node.op == "transpose" and node.operands[0] in graph.inputs
        if not of_input and node.op != "reshape":
            kinds[_kind(node)] += 1
    return kinds


def _kind(node: Node) -> str:
    body = node.attrs.get("body")
    inner = [node] if body is None else body.nodes
    anchors = [part.op for part in inner if not lookup(part.op).elementwise]
    return anchors[0] if anchors else "elementwise"


def check(framework: str, model: str, graph: Graph) -> None:
    """Compare with the model in our own ops: logits to 1e-5, losses to 1e-4, same kernels."""
    found, expected = measure(model, graph), measure(model, REFERENCE[model]())
    np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-4)
    assert found.ops == Counter(expected.ops) + EXTRA.get((framework, model), Counter())


def report(graphs: Mapping[str, Callable[[], Graph]]) -> None:
    """Print the measurements of a frontend's graphs for the table, a line of JSON per model."""
    argparse.ArgumentParser(description=report.__doc__).parse_args()
    for model in MODELS:
        print(json.dumps({"model": model, **vars(measure(model, graphs[model]()))}))
