"""ONNX Runtime's results for a graph without params."""

from pathlib import Path

import numpy as np

from pockengine.backends.onnx.backend import onnx_backend
from pockengine.backends.onnx.bindings import CONSTANTS, model_name
from pockengine.backends.onnx.model import write_models
from pockengine.backends.onnx.runtime import OnnxModel
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Graph
from pockengine.devices import load_device

TARGET = onnx_backend(load_device("host")).target()


def computed(graph: Graph, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The runtime's results for a graph without params."""
    program = compile_entries("case", {"case": graph}, target=TARGET)
    write_models(program, folder)
    beside = {CONSTANTS: np.fromfile(folder / CONSTANTS, np.uint8)}
    model = OnnxModel("case", (folder / model_name("case")).read_bytes(), beside, 2)
    outputs = {
        name: np.empty(value.shape, value.dtype.numpy)
        for name, value in program.entries["case"].graph.outputs.items()
    }
    model.run(model.bind(inputs, outputs))
    return outputs
