"""The error classes. Each stage raises its own, in the user's names.

A message names the thing, states the fact, and gives the fix.
"""

import re
from pathlib import Path


def printable(text: str) -> str:
    """Escape, as Python does, characters that control a terminal or cannot be encoded."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text
    )


SYSTEM_REASON = re.compile(r"I/O error: (.*) \(os error \d+\)$")
"""How Rust's libraries, such as safetensors, end an error of the operating system."""


def reason_of(error: BaseException) -> str:
    """Return an error's message without Python's forms: an OSError's number, a repr of a path.

    If a folder of the path is a file, the message names it.
    """
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    system = SYSTEM_REASON.search(str(error))
    if system is not None:
        return system[1]
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if isinstance(error, NotADirectoryError) and isinstance(error.filename, str):
        folders = Path(error.filename).parents
        file = next((folder for folder in folders if folder.is_file()), None)
        if file is not None:
            return f"{file} is a file, not a folder"
    return error.strerror


def masked_data(name: str) -> str:
    """Return the message for data in a NumPy masked array, whose mask a conversion would drop."""
    return (
        f"{name} has masked elements, and no step reads a mask; give {name}.filled(number), or "
        "leave out the rows"
    )


class PockEngineError(Exception):
    """Base class of every error that this project raises on purpose.

    Its text is printable, since names may come from untrusted files.
    """

    def __str__(self) -> str:
        """Return the message, with control characters escaped."""
        return printable(super().__str__())


class MissingPackage(PockEngineError):
    """A package that a task needs is not installed."""


class InternalError(PockEngineError):
    """A bug in this project, or an unsupported version of a package."""


class GraphError(PockEngineError):
    """A graph that breaks a rule of the intermediate representation."""


class ImportModelError(PockEngineError):
    """A framework's model that a frontend cannot import."""


class SchemeError(PockEngineError):
    """A training scheme that does not fit the model or cannot be read."""


class AdapterError(PockEngineError):
    """An adapter's files that are damaged, or that do not fit the compiled model."""


class CompileError(PockEngineError):
    """A graph that cannot be compiled for the chosen device."""


class BudgetError(CompileError):
    """A memory budget that cannot be met; `least` is the smallest possible arena in bytes."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


class CapacityError(CompileError):
    """A program larger than a memory of its target."""


class CheckError(PockEngineError):
    """A compiled step whose loss or gradients differ from the framework's."""


class DeviceError(PockEngineError):
    """An unknown device or a device file that cannot be used."""


class BuildError(PockEngineError):
    """A C toolchain that is missing or that rejected generated code."""


class ArtifactError(PockEngineError):
    """An artifact whose files are missing, damaged, or of another version."""


class RuntimeFailure(PockEngineError):
    """A compiled program that reported an error or got wrong inputs."""


class ArgumentError(RuntimeFailure, TypeError):
    """An argument of the wrong type."""


class TrainingDiverged(RuntimeFailure):
    """A training whose loss or parameters are no longer finite."""


class FinetuneError(PockEngineError):
    """Data, a recipe or a table of trials that does not fit the training."""


class FarmError(PockEngineError):
    """A board, transport or job that failed."""


class BoardUnreachable(FarmError):
    """A board that does not answer, or answers incorrectly."""


class BoardRefused(BoardUnreachable):
    """A board whose host key is not the pinned one, or that refuses our key; do not retry."""


class DatabaseDown(FarmError):
    """A database unavailable for longer than the timeout; no board is at fault."""


class LogError(PockEngineError):
    """A log or output that this machine cannot write; no board and no job is at fault."""


class JobFailed(FarmError):
    """A job that failed on a board; `stdout` and `stderr` are its output."""

    def __init__(self, message: str, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.stdout, self.stderr = stdout, stderr
