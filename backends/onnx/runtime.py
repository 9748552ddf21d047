"""ONNX Runtime, imported where a session opens: what is missing, too old or refused says so."""

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
"""The first release whose Python takes a file of constants from memory."""


def import_runtime() -> types.ModuleType:
    """Import onnxruntime; MissingPackage where it is not there, or is too old."""
    need("a session of the backend onnx", EXTRA)
    import onnxruntime

    numbers = re.findall(r"\d+", onnxruntime.__version__)[:2]
    if tuple(map(int, numbers)) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise MissingPackage(
            f"a session of the backend onnx needs onnxruntime {wanted} or newer, not "
            f"{onnxruntime.__version__}: {pip_command(EXTRA)} --upgrade"
        )
    module: types.ModuleType = onnxruntime
    return module


class Provider(Protocol):
    """What computes a model's nodes beside the runtime's own kernels."""

    def add_to(self, runtime: Any, options: Any) -> None:
        """Have the sessions that are opened with these options use it."""


@dataclass(frozen=True)
class Placed:
    """A node as the runtime has rewritten it: its operator, its name, and what runs it."""

    op: str
    name: str
    provider: str


class OnnxModel:
    """A model that the runtime has read; RuntimeFailure with its words where it refuses it.

    Its words name a node by our node, which says the user's layer. `beside` are the bytes of the
    files that the model refers to, by their names; nothing is read from disk.
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
        options.log_severity_level = 3  # errors; no user can mend what it only warns of
        files = {name: data for name, data in beside.items() if data.size}
        sizes = [data.size for data in files.values()]
        options.add_external_initializers_from_files_in_memory([*files], [*files.values()], sizes)
        providers = ["CPUExecutionProvider"] if provider is None else None
        if provider is not None:
            provider.add_to(self._runtime, options)
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        try:
            self._session = self._runtime.InferenceSession(model, options, providers=providers)
        except Exception as error:  # the runtime's errors have no base of their own
            raise self._failure("refuses", error) from error

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs in their order."""
        return [value.name for value in self._session.get_inputs()]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs in their order."""
        return [value.name for value in self._session.get_outputs()]

    def placed(self) -> list[Placed]:
        """Which provider runs each node; known of a model with a provider of its own."""
        parts = self._session.get_provider_graph_assignment_info()
        return [Placed(n.op_type, n.name, part.ep_name) for part in parts for n in part.get_nodes()]

    def made(self, beginning: str) -> dict[str, np.ndarray]:
        """Return arrays for the outputs whose names begin so."""
        return {
            value.name: np.empty(value.shape, RUNTIME_NAMES[value.type].numpy)
            for value in self._session.get_outputs()
            if value.name.startswith(beginning)
        }

    def bind(self, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> Any:
        """Bind arrays, which must live as long: they are read and written where they are."""
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, self._value(array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, self._value(array))
        return binding

    def run(self, binding: Any) -> None:
        """Run the model on what is bound; RuntimeFailure with the runtime's words."""
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
