"""Places of equations in the user's program: the module's path and the line of code."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pockengine.frontends.faults import OURS

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "chex", "equinox", "haiku")
"""Packages whose lines are omitted from messages."""


@dataclass(frozen=True)
class SourceLocation:
    """A path of named scopes, such as `Net.Dense_0`, and the user's line, such as `net.py:12`."""

    scope: str = ""
    line: str = ""

    def __str__(self) -> str:
        return f"{self.scope or 'the top level'}{f' ({self.line})' if self.line else ''}"

    def of(self, equation: Any) -> "SourceLocation":
        """Return the place of an equation inside a function that was called here."""
        info = equation.source_info
        inner = str(info.name_stack).replace("/", ".")
        scope = ".".join(part for part in (self.scope, inner) if part)
        return SourceLocation(scope, _user_line(info.traceback) or self.line)


def _folders() -> tuple[str, ...]:
    """Return the folders of the libraries and of this package."""
    folders = []
    for name in LIBRARIES:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            folders.append(str(Path(file).parent))
    return (*OURS, *(f"{folder}/" for folder in folders))


def is_library(file: str) -> bool:
    """Return whether a source file belongs to JAX or a library on top of it."""
    return file.startswith(_folders())


def is_jax(file: str) -> bool:
    """Return whether a source file is JAX's own."""
    return file.startswith(f"{Path(str(sys.modules['jax'].__file__)).parent}/")


def _user_line(traceback: Any) -> str:
    """Return the innermost line that no library wrote."""
    for frame in getattr(traceback, "frames", None) or ():
        if not is_library(frame.file_name) and not frame.file_name.startswith("<"):
            return f"{Path(frame.file_name).name}:{frame.line_num}"
    return ""


def raised_at(traceback: TracebackType | None) -> str:
    """Return the innermost line of the user's that an exception passed."""
    place = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not is_library(file) and not file.startswith("<"):
            place = f"{Path(file).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
