"""Run an imported graph as generated C."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Graph
from pockengine.devices import load_device


def by_c(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compile a graph with all its outputs into one program and run it on two threads."""
    backend = CBackend(load_device("host"))
    program = compile_entries("edges", {"run": graph}, target=backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-edges-") as folder:
        artifact = write_artifact(program, backend, Path(folder) / "artifact")
        with open_session(artifact, threads=2) as session:
            needed = session.artifact.entries["run"].inputs
            return session.run("run", {name: x for name, x in inputs.items() if name in needed})
