"""The ONNX backend, set to a device."""

from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.model import write_models
from pockengine.backends.protocol import Built, Facts, Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice, MemorySpace, Target, choose_nothing
from pockengine.devices.schema import Device

PASSES = frozenset({"scatter_updates"})
"""The runtime fuses and keeps activations as it likes; a table is only written where it is read."""


@dataclass(frozen=True)
class OnnxBackend:
    """The backend set to a device; it has no options."""

    device: Device

    def target(self) -> Target:
        """Return the ops that have a form, and no fusions."""
        return Target(
            name=f"onnx on {self.device.name}",
            ops=frozenset(FORMS),
            dtypes=frozenset(NUMBERS),
            passes=PASSES,
            spaces=(MemorySpace(size=self.device.memory_bytes),),
        )

    def choose(self, node: Node) -> Choice:
        """Choose nothing: the runtime does."""
        return choose_nothing(node)

    def frugal(self) -> None:
        """Return None: the runtime's kernels are what they are."""

    def facts(self, program: Program) -> Facts:
        """Count nodes as kernels; the runtime takes as many threads as it is told."""
        processor = self.device.processor
        threads = 1 if processor is None else processor.cores
        return Facts("onnx", threads, sum(len(e.graph.nodes) for e in program.entries.values()))

    def write(self, program: Program, folder: Path) -> None:
        """Write a model for each entry, and what they share."""
        write_models(program, folder)

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build nothing: the runtime reads the models as they are."""
        return Built()

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write nothing: what other programs load are the models."""
