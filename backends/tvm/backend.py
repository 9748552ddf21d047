"""The TVM backend, configured for a device."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from pockengine.backends.native.build import named_by_content
from pockengine.backends.onnx.backend import onnx_backend
from pockengine.backends.onnx.bindings import model_name
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.protocol import Built, CodeFacts, Progress
from pockengine.backends.runtimes.backend import ModelBackend
from pockengine.backends.tvm.anonymous import function_of
from pockengine.backends.tvm.functions import read_functions, write_functions
from pockengine.backends.tvm.library import Traces, build_library
from pockengine.compiler.ir import Node
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice, Target, choose_nothing
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

LIBRARY = "libprogram.so"

MISREAD = frozenset({"layer_norm", "dequantize", "quantize", "unclamped"})
"""Ops whose forms TVM's importer gets wrong (LayerNormalization has three results); they are
legalized to other ops. 8-bit integers are untested, and refused.
"""


@dataclass(frozen=True)
class TvmBackend:
    """The backend for one device; CompileError if TVM cannot generate code for it.

    `tuned` are measured schedules of kernels.
    """

    device: Device
    tuned: Traces = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.device.freestanding:
            raise CompileError(
                f"{self.device.name} has no operating system, which TVM's runtime needs; compile "
                "for it by the backend c"
            )

    def target(self) -> Target:
        """Return the ONNX backend's target, without ops that TVM misreads."""
        name = f"tvm on {self.device.name}"
        return replace(self._models.target(), name=name, ops=frozenset(FORMS) - MISREAD)

    def choose(self, node: Node) -> Choice:
        """Choose nothing: TVM chooses."""
        return choose_nothing(node)

    def with_less_scratch(self) -> None:
        """Return None: TVM's kernels are fixed."""

    def facts(self, program: Program) -> CodeFacts:
        """Count nodes as kernels; TVM's threads are the process's."""
        return self._models.facts(program)

    def write(self, program: Program, folder: Path) -> None:
        """Write a model per entry, the shared constants, and the functions' signatures."""
        self._models.write(program, folder)
        models = {name: load_model(folder, name) for name in program.entries}
        write_functions({name: function_of(model) for name, model in models.items()}, folder)

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build all entries into a library that TVM's runtime loads."""
        out.mkdir(parents=True, exist_ok=True)
        models = {name: load_model(code, name) for name in read_functions(code)}
        if progress:
            progress(f"building {len(models)} entries by TVM")
        library = out / LIBRARY
        build_library(models, self.device, library, self.tuned)
        return Built(library=named_by_content(library))

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write nothing: TVM's runtime loads the library through its own interface."""

    @property
    def _models(self) -> ModelBackend:
        return onnx_backend(self.device)


def load_model(folder: Path, name: str) -> onnx.ModelProto:
    """Return an entry's model as `write` left it, without its constants."""
    return onnx.load(str(folder / model_name(name)), load_external_data=False)
