"""The one tree of errors: each is raised by the stage that knows, in the user's names.

A message names the thing, states the fact, and says the fix.
"""


def printable(text: str) -> str:
    """Write characters that a terminal obeys, or that cannot be encoded, as Python's escapes."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text
    )


class PockEngineError(Exception):
    """Base of every error that this project raises on purpose.

    As text it is printable: names come from files of anybody.
    """

    def __str__(self) -> str:
        """Return the message, without what a terminal would obey."""
        return printable(super().__str__())


class MissingPackage(PockEngineError):
    """A package that a task needs and that is not installed."""


class InternalError(PockEngineError):
    """A fault of this project itself, or a release of a package that it does not fit."""


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
    """A memory budget is out of reach; `least` bytes of arena are not."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


class CapacityError(CompileError):
    """A program that is larger than a memory of its target."""


class CheckError(PockEngineError):
    """A compiled step whose loss or gradients are not the framework's."""


class DeviceError(PockEngineError):
    """An unknown device or a device file that cannot be used."""


class BuildError(PockEngineError):
    """A C toolchain that is missing or that rejected generated code."""


class ArtifactError(PockEngineError):
    """An artifact whose files are missing, damaged, or of another version."""


class RuntimeFailure(PockEngineError):
    """A compiled program that reported an error or was fed the wrong inputs."""


class ArgumentError(RuntimeFailure, TypeError):
    """An argument of another type than the function takes."""


class TrainingDiverged(RuntimeFailure):
    """A training whose loss, or whose params, are no longer finite."""


class FinetuneError(PockEngineError):
    """Data, a recipe or a table of trials that does not fit what is to be tuned."""


class FarmError(PockEngineError):
    """A board, transport or job that failed."""


class BoardUnreachable(FarmError):
    """A board that does not answer, or answers as it should not."""


class BoardRefused(BoardUnreachable):
    """A board whose host key is not the pinned one, or that refuses our key: waiting is no help."""


class DatabaseDown(FarmError):
    """A database that stayed away longer than we wait; no board is at fault."""


class LogError(PockEngineError):
    """A log on this machine that cannot be written; no board and no job is at fault."""


class JobFailed(FarmError):
    """A job that ran on a board and ended badly; `stdout` and `stderr` are what it printed."""

    def __init__(self, message: str, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.stdout, self.stderr = stdout, stderr
