"""Import ONNX Runtime when a session opens, with clear errors if it is missing or too old."""

import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pockengine.backends.onnx.element_types import NUMBERS, RUNTIME_NAMES
from pockengine.compiler.ir.types import DType
from pockengine.errors import MissingPackage, RuntimeFailure
from pockengine.extras import need, pip_command

EXTRA = "onnxruntime"
OLDEST = (1, 24)
"""The first release whose Python API takes a file of constants from memory."""


def import_runtime() -> types.ModuleType:
    """Import onnxruntime; MissingPackage if it is missing or too old."""
    need("a session of the backend onnx", EXTRA)
    import onnxruntime

    numbers = re.findall(r"\d+", onnxruntime.__version__)[:2]
    if tuple(map(int, numbers)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise MissingPackage(
            f"a session of the backend onnx needs onnxruntime {oldest} or newer, not "
            f"{onnxruntime.__version__}: {pip_command(EXTRA)} --upgrade"
        )
    module: types.ModuleType = onnxruntime
    return module


class Provider(Protocol):
    """An execution provider, besides the runtime's own kernels."""

    def add_to(self, runtime: Any, options: Any) -> None:
        """Add it to the options of sessions."""


@dataclass(frozen=True)
class Placed:
    """A node as rewritten by the runtime: its operator, its name, and its provider."""

    op: str
    name: str
    provider: str


class OnnxModel:
    """A model loaded by the runtime; RuntimeFailure with its message if it refuses the model.

    The message names our node, with the user's layer. `beside` has the bytes of external files by
    name; nothing is read from disk.
    """

    def __init__(
        self,
        name: str,
        model: bytes,
        beside: Mapping[str, np.ndarray],
        threads: int,
        provider: Provider | None = None,
    ) -> None:
        self.name = name
        self._runtime = import_runtime()
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only; users cannot fix warnings
        files = {name: data for name, data in beside.items() if data.size}
        sizes = [data.size for data in files.values()]
        options.add_external_initializers_from_files_in_memory([*files], [*files.values()], sizes)
        providers = ["CPUExecutionProvider"] if provider is None else None
        if provider is not None:
            provider.add_to(self._runtime, options)
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        try:
            self._session = self._runtime.InferenceSession(model, options, providers=providers)
        except Exception as error:  # the runtime's exceptions have no common base class
            raise self._failure("refuses", error) from error

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs in order."""
        return [value.name for value in self._session.get_inputs()]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs in order."""
        return [value.name for value in self._session.get_outputs()]

    def placed(self) -> list[Placed]:
        """The provider of each node; available for a model with its own provider."""
        parts = self._session.get_provider_graph_assignment_info()
        return [Placed(n.op_type, n.name, part.ep_name) for part in parts for n in part.get_nodes()]

    def allocate(self, beginning: str) -> dict[str, np.ndarray]:
        """Allocate arrays for the outputs with this name prefix."""
        return {
            value.name: np.empty(value.shape, RUNTIME_NAMES[value.type].numpy)
            for value in self._session.get_outputs()
            if value.name.startswith(beginning)
        }

    def bind(self, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> Any:
        """Bind arrays, which must outlive the binding: they are read and written in place."""
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, self._value(array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, self._value(array))
        return binding

    def run(self, binding: Any) -> None:
        """Run the model on the bound arrays; RuntimeFailure with the runtime's message."""
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise self._failure("failed to run", error) from error

    def _value(self, array: np.ndarray) -> Any:
        number = NUMBERS[DType.of(array)]
        return self._runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, number)

    def _failure(self, verb: str, error: Exception) -> RuntimeFailure:
        words = " ".join(re.sub(r"/\S+\.(?:cc|h):\d+ ", "", str(error)).split())
        return RuntimeFailure(
            f"onnxruntime {self._runtime.__version__} {verb} {self.name}.onnx: {words}"
        )
