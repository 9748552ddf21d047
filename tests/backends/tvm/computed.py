"""TVM's results for a graph without params."""

from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax

from pockengine.backends.onnx.bindings import CONSTANTS, model_name
from pockengine.backends.onnx.model import write_models
from pockengine.backends.tvm.anonymous import function_of
from pockengine.backends.tvm.backend import TvmBackend
from pockengine.backends.tvm.library import compiled, module_of
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.types import DType
from pockengine.devices import load_device

BACKEND = TvmBackend(load_device("host"))


def computed(graph: Graph, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Compile a graph in memory and run it once."""
    program = compile_entries("case", {"case": graph}, target=BACKEND.target())
    write_models(program, folder)
    model = onnx.load(str(folder / model_name("case")), load_external_data=False)
    function = function_of(model)
    built = compiled(module_of({"case": model}), BACKEND.device)
    bytes_ = np.fromfile(folder / CONSTANTS, np.uint8)
    operands = [inputs[name] for name in function.inputs]
    for constant in function.constants:
        numpy = DType(constant.dtype).numpy
        count = int(np.prod(constant.shape)) * numpy.itemsize
        data = bytes_[constant.offset : constant.offset + count].view(numpy)
        operands.append(data.reshape(constant.shape))
    tensors = [tvm.runtime.tensor(np.array(array, order="C")) for array in operands]
    results = relax.VirtualMachine(built, tvm.cpu())["case"](*tensors)
    single = isinstance(results, tvm.runtime.Tensor)
    found = [results] if single else list(results)
    return {name: each.numpy() for name, each in zip(function.outputs, found, strict=True)}
