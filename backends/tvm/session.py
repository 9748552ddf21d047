"""Sessions of TVM libraries: its virtual machine runs entries on its own tensors.

A function returns each written param as a new tensor, which is the next call's input: nothing is
copied, and no node can read new contents too early.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from pockengine.backends.artifact import Artifact
from pockengine.backends.onnx.bindings import NEXT
from pockengine.backends.onnx.models_session import ModelsSession
from pockengine.backends.tvm.functions import Constant, read_functions
from pockengine.compiler.ir.types import DType
from pockengine.errors import RuntimeFailure


class TvmSession(ModelsSession):
    """An artifact's functions, run by TVM's virtual machine in one thread."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        self._written: dict[str, tvm.runtime.Tensor] = {}
        super().__init__(artifact, threads)
        functions = read_functions(artifact.folder / "code")
        try:
            library = tvm.runtime.load_module(str(artifact.library))
            self._machine: Any = relax.VirtualMachine(library, tvm.cpu())
        except Exception as error:  # TVM's exceptions have no common base class
            raise _failure(f"cannot open {artifact.library}", error) from error
        self._functions = functions
        self._views: dict[Constant, tvm.runtime.Tensor] = {}

    def _run_model(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        spec, function = self.artifact.entries[entry], self._functions[entry]
        arguments = {name: _tensor(data) for name, data in zip(spec.inputs, inputs, strict=True)}
        read = [
            arguments[name] if name in arguments else self._written[name]
            for name in function.inputs
        ]
        read += [self._view(constant) for constant in function.constants]
        try:
            results = self._machine[entry](*read)
        except Exception as error:
            raise _failure(f"failed to run {entry}", error) from error
        single = isinstance(results, tvm.runtime.Tensor)
        found = dict(zip(function.outputs, [results] if single else results, strict=True))
        for name, array in zip(spec.outputs, outputs, strict=True):
            array[...] = found.pop(name).numpy()
        self._written |= {name.removeprefix(NEXT): tensor for name, tensor in found.items()}

    def _view(self, constant: Constant) -> tvm.runtime.Tensor:
        """A view of a constant in place, without a copy."""
        if constant not in self._views:
            numpy = DType(constant.dtype).numpy
            count = int(np.prod(constant.shape, dtype=np.int64)) * numpy.itemsize
            data = self._constants[constant.offset : constant.offset + count]
            array = np.asarray(data).view(numpy).reshape(constant.shape)
            self._views[constant] = tvm.runtime.from_dlpack(array)
        return self._views[constant]

    def _set_content(self, name: str, content: np.ndarray) -> None:
        self._written[name] = _tensor(content)

    def _content(self, name: str) -> np.ndarray:
        data: np.ndarray = self._written[name].numpy()
        return data

    def _constants_changed(self) -> None:
        """Do nothing: functions read the constants in place."""

    def _release(self) -> None:
        self._written, self._views, self._machine = {}, {}, None


def _tensor(data: np.ndarray) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.asarray(data, order="C"))


def _failure(verb: str, error: Exception) -> RuntimeFailure:
    return RuntimeFailure(f"TVM {tvm.__version__} {verb}: {' '.join(str(error).split())}")
