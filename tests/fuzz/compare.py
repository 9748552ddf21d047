"""Our side of a program: loss and gradients in the oracle and in generated C."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.autodiff import backward
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.base import run_passes
from pockengine.compiler.passes.pipeline import PipelineOptions, training_pipeline
from pockengine.devices import load_device

RATE = np.float32(1024)
"""A power of two, so that a step's difference divided by it is almost exactly the gradient."""


@dataclass(frozen=True)
class Imported:
    """Many programs as one graph: its inputs, and the names of each program's result and params.

    The output `loss` is the sum of the results.
    """

    graph: Graph
    inputs: Mapping[str, np.ndarray]
    outputs: Sequence[str]
    params: Sequence[Mapping[str, str]]


Results = list[list[np.ndarray]]
"""For each program: its result, then the gradients of its trained leaves."""


def by_graph(imported: Imported) -> Results:
    """Differentiate the graph and evaluate it without passes."""
    graph = clone(imported.graph)
    g = Builder(graph)
    trained = [param.value for param in graph.params.values() if param.trainable]
    gradients = backward(g, graph.outputs["loss"], dict.fromkeys(trained))
    for value, gradient in gradients.items():
        g.output(f"gradient.{value.name}", gradient)
    found = run(graph, imported.inputs)
    return _results(imported, found, {v.name: found[f"gradient.{v.name}"] for v in gradients})


def by_step(imported: Imported) -> Results:
    """Evaluate the whole step, after all passes."""
    step = clone(imported.graph)
    trained = dict.fromkeys(name for name, param in step.params.items() if param.trainable)
    options = PipelineOptions(trained, trained.keys(), outputs=step.outputs.keys())
    run_passes(training_pipeline(options), step)
    verify(step)
    before = {name: param.data for name, param in step.params.items()}
    after = {name: data.copy() for name, data in before.items()}
    found = run(step, {**imported.inputs, "lr": RATE}, after)
    return _results(imported, found, _moved(before, after))


def by_code(imported: Imported) -> Results:
    """Run the step in generated C, with little optimization."""
    host = load_device("host")
    flags = (*host.toolchain.flags, "-O1")
    backend = CBackend(replace(host, compiler=replace(host.toolchain, flags=flags)))
    program = compile_program(imported.graph, Training(optimizer=Sgd()), target=backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-fuzz-") as folder:
        artifact = write_artifact(program, backend, Path(folder) / "artifact")
        with open_session(artifact, threads=2) as session:
            before = session.params()
            found = session.train_step(imported.inputs, lr=float(RATE))
            return _results(imported, found, _moved(before, session.params()))


def _moved(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return {
        name: ((before[name].astype(np.float64) - after[name]) / float(RATE)).astype(np.float32)
        for name in before
        if name in after and before[name].dtype == np.float32
    }


def _results(
    imported: Imported, outputs: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray]
) -> Results:
    found = []
    for output, names in zip(imported.outputs, imported.params, strict=True):
        arrays = [outputs[output]]
        for name in names.values():
            order = imported.graph.params[name].permutation
            array = gradients[name]
            arrays.append(array if order is None else array.transpose(np.argsort(order)))
        found.append(arrays)
    return found
