"""A backend for runtimes that load models as written, without a build."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.protocol import Built, CodeFacts, Progress
from pockengine.compiler.ir import DType, Node
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice, MemorySpace, Target, choose_nothing
from pockengine.devices.schema import Device


@dataclass(frozen=True)
class Models:
    """A model format: the ops with a form, their types, and the function that writes models.

    `passes` are the optional passes that pay. With `rate_first` plain SGD multiplies the loss's
    gradient by the rate, and thereby all others.
    """

    runtime: str
    ops: Collection[str]
    dtypes: Collection[DType]
    passes: frozenset[str]
    write: Callable[[Program, Path], None]
    rate_first: bool = True


@dataclass(frozen=True)
class ModelBackend:
    """The backend for a model format, configured for a device; it has no options."""

    device: Device
    models: Models

    def target(self) -> Target:
        """Return the ops with a form, without fusions: the runtime fuses by itself."""
        return Target(
            name=f"{self.models.runtime} on {self.device.name}",
            ops=frozenset(self.models.ops),
            dtypes=frozenset(self.models.dtypes),
            passes=self.models.passes,
            spaces=(MemorySpace(size=self.device.memory_bytes),),
            rate_first=self.models.rate_first,
        )

    def choose(self, node: Node) -> Choice:
        """Choose nothing: the runtime chooses."""
        return choose_nothing(node)

    def with_less_scratch(self) -> None:
        """Return None: the runtime's kernels are fixed."""

    def facts(self, program: Program) -> CodeFacts:
        """Count nodes as kernels; the runtime uses the given number of threads."""
        processor = self.device.processor
        threads = 1 if processor is None else processor.cores
        nodes = sum(len(entry.graph.nodes) for entry in program.entries.values())
        return CodeFacts(self.models.runtime, threads, nodes)

    def write(self, program: Program, folder: Path) -> None:
        """Write a program's models, and their metadata."""
        self.models.write(program, folder)

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build nothing: the runtime loads the models as written."""
        return Built()

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write nothing: other programs load the models themselves."""
