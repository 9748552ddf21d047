"""What a backend is: from a node to a choice, from a program to code, from that to a session.

A backend chooses in numbers (`choose`), writes a program's code into a folder (`write`), builds it
(`build`), and opens what was built on this machine (`BackendKind.open`). Nothing outside of a
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
"""Is given one line about each step that takes long."""


@dataclass(frozen=True)
class BackendOptions:
    """What may be asked of a backend beside a device; one that lacks an option refuses it.

    With `bf16` the operands of large products are rounded to bf16. `tuned` is a file of plans that
    were measured on the device. With `prepare` kernels keep what they make of frozen weights.
    """

    bf16: bool = option(False, "Round the operands of large products to bf16.")
    tuned: Path | str | None = option(None, "A file of `pockengine tune`.")
    prepare: bool = option(False, "Keep what kernels make of frozen weights: faster, larger.")

    def refuse_all_but(self, name: str, known: frozenset[str]) -> None:
        """Raise CompileError for an option that was asked for and that backend `name` lacks."""
        for part in fields(BackendOptions):
            if part.name not in known and getattr(self, part.name) != part.default:
                raise CompileError(f"backend {name} has no option {part.name}; leave it out")


@dataclass(frozen=True)
class Built:
    """What a build left: a runner for the device, and a library for sessions, if there is one."""

    executable: Path | None = None
    library: Path | None = None


@dataclass(frozen=True)
class CodeFacts:
    """What a manifest says of a program's code: for which instructions, most threads, kernels."""

    isa: str
    threads: int
    kernels: int


class Backend(Protocol):
    """A backend set to one device and to options."""

    @property
    def device(self) -> Device:
        """The device that it writes for."""

    def target(self) -> Target:
        """Return what the compiler asks: fusions, passes, and how a node is computed."""

    def choose(self, node: Node) -> Choice:
        """Choose how to compute a node, in numbers; CompileError names what the backend lacks."""

    def with_less_scratch(self) -> Optional["Backend"]:
        """Return the same backend with kernels of less scratch; None where there are none."""

    def facts(self, program: Program) -> CodeFacts:
        """Return what the manifest says of the program's code."""

    def write(self, program: Program, folder: Path) -> None:
        """Write a program's code as it was chosen and planned into an empty folder."""

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build what `write` left in `code` into the folder `out`; BuildError where that fails."""

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write into an artifact's folder what other programs link, from what was built."""


@dataclass(frozen=True)
class BackendKind:
    """A backend before it is set to a device: how it is made, and how its artifacts are opened.

    `open` runs an artifact on this machine by so many threads; it needs no device. With `emulated`
    that is no more than an imitation of another machine, whose time says nothing. With
    `accelerated` another processor than the device's own computes, of which no model of cycles is.
    """

    make: Callable[[Device, BackendOptions], Backend]
    open: Callable[["Artifact", int], "Session"]
    emulated: bool = False
    accelerated: bool = False
