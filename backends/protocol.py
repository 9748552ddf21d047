"""The backend interface: choose kernels, generate code, build it, and open sessions.

A backend chooses kernels by parameters (`choose`), writes a program's code to a folder (`write`),
builds it (`build`), and opens the result on this machine (`BackendKind.open`). Nothing outside a
backend's folder sees its text. `registry.py` finds the backend that a device names.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Protocol

from pockengine.compiler.ir import Node
from pockengine.compiler.option import option
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice, Target
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

if TYPE_CHECKING:
    from pockengine.backends.artifact import Artifact
    from pockengine.backends.session import Session

Progress = Callable[[str], None]
"""Called with one line about each slow step."""


@dataclass(frozen=True)
class BackendOptions:
    """Options of backends besides the device; a backend refuses unsupported ones.

    With `bf16` the operands of large products are rounded to bf16. `tuned` is a file of plans
    measured on the device. With `prepare` kernels store the forms that they make of frozen weights.
    """

    bf16: bool = option(False, "Round the operands of large products to bf16.")
    tuned: Path | str | None = option(None, "A table of `pockengine tune`.")
    prepare: bool = option(False, "Store frozen weights prepared for kernels: faster, larger.")

    def refuse_all_but(self, name: str, known: frozenset[str]) -> None:
        """Raise CompileError for a requested option that backend `name` does not support."""
        for part in fields(BackendOptions):
            if part.name not in known and getattr(self, part.name) != part.default:
                raise CompileError(f"backend {name} has no option {part.name}; leave it out")


@dataclass(frozen=True)
class Built:
    """Build results: a runner for the device, and a library for sessions, if there is one."""

    executable: Path | None = None
    library: Path | None = None


@dataclass(frozen=True)
class CodeFacts:
    """The manifest's facts of generated code: instruction set, maximum threads, kernel count."""

    isa: str
    threads: int
    kernels: int


class Backend(Protocol):
    """A backend configured for one device and options."""

    @property
    def device(self) -> Device:
        """The device to generate code for."""

    def target(self) -> Target:
        """Return the compiler's target: fusions, passes, and kernel choices."""

    def choose(self, node: Node) -> Choice:
        """Choose how to compute a node; CompileError if the backend does not support it."""

    def with_less_scratch(self) -> Optional["Backend"]:
        """Return a variant with kernels of less scratch; None if there is none."""

    def facts(self, program: Program) -> CodeFacts:
        """Return the facts of the program's code for the manifest."""

    def write(self, program: Program, folder: Path) -> None:
        """Write a program's code into an empty folder, following its choices and plan."""

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the files in `code` into the folder `out`; BuildError if that fails."""

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write what other programs link into an artifact's folder, from the build."""


@dataclass(frozen=True)
class BackendKind:
    """A backend's factory: configures it for a device, and opens its artifacts.

    `open` runs an artifact on this machine with this many threads; it needs no device. `emulated`
    marks an emulation of another machine, whose time is meaningless. `accelerated` marks
    computation on a processor other than the device's CPU, for which there is no cycle model.
    """

    make: Callable[[Device, BackendOptions], Backend]
    open: Callable[["Artifact", int], "Session"]
    emulated: bool = False
    accelerated: bool = False
