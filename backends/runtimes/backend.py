"""A backend whose runtime reads the models that are written as they are."""

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
    """What a runtime takes: the ops that have a form, their types, and how models are written.

    `passes` are those that a target may do without. With `rate_first` plain SGD multiplies the
    loss's gradient by the rate, and so all others.
    """

    runtime: str
    ops: Collection[str]
    dtypes: Collection[DType]
    passes: frozenset[str]
    write: Callable[[Program, Path], None]
    rate_first: bool = True


@dataclass(frozen=True)
class ModelBackend:
    """The backend of a kind of models set to a device; it has no options."""

    device: Device
    models: Models

    def target(self) -> Target:
        """Return the ops that have a form, and no fusions: the runtime fuses as it likes."""
        return Target(
            name=f"{self.models.runtime} on {self.device.name}",
            ops=frozenset(self.models.ops),
            dtypes=frozenset(self.models.dtypes),
            passes=self.models.passes,
            spaces=(MemorySpace(size=self.device.memory_bytes),),
            rate_first=self.models.rate_first,
        )

    def choose(self, node: Node) -> Choice:
        """Choose nothing: the runtime does."""
        return choose_nothing(node)

    def with_less_scratch(self) -> None:
        """Return None: the runtime's kernels are what they are."""

    def facts(self, program: Program) -> CodeFacts:
        """Count nodes as kernels; the runtime takes as many threads as it is told."""
        processor = self.device.processor
        threads = 1 if processor is None else processor.cores
        nodes = sum(len(entry.graph.nodes) for entry in program.entries.values())
        return CodeFacts(self.models.runtime, threads, nodes)

    def write(self, program: Program, folder: Path) -> None:
        """Write a program's models, and what is beside them."""
        self.models.write(program, folder)

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build nothing: the runtime reads the models as they are."""
        return Built()

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write nothing: what other programs load are the models."""
