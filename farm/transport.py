"""How the farm speaks to a board: run a command, put a file, get a file, close.

Every kind of board answers the same protocol, so that a job does not know where it runs. Commands
are argument lists, never shell text: what a name contains cannot change what is run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Called during a transfer with the bytes moved so far and the bytes in all.
Progress = Callable[[int, int], None]

OUTPUT_LIMIT = 64 << 20  # bytes of each output stream that are kept; more is a runaway program


@dataclass(frozen=True)
class RunResult:
    """How one command ended: `status` is None when a signal (say "SIGSEGV") ended it."""

    argv: tuple[str, ...]
    status: int | None
    signal: str | None
    stdout: bytes
    stderr: bytes
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.status == 0

    def describe(self) -> str:
        """Say in one line how it ended, with the last line it printed to stderr."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        tail = f": {lines[-1]}" if lines else ""
        if self.signal:
            return f"killed by signal {self.signal}{tail}"
        return f"exit status {self.status}{tail}"


class Transport(Protocol):
    """An open connection to one board. Errors are FarmError and below, naming the board."""

    board: str
    workdir: str  # absolute path of the folder on the board in which jobs may write

    def run(
        self, argv: Sequence[str], *, cwd: str | None = None, timeout_s: float = 60.0
    ) -> RunResult:
        """Run a command; JobFailed when it is still there after `timeout_s` (it is killed)."""

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Make `target` (absolute, executable) the same bytes as `source`.

        Return False when nothing had to be sent. The file is there whole or not at all.
        """

    def get(self, source: str, target: Path) -> None:
        """Copy a file of the board to this machine, whole or not at all."""

    def close(self) -> None:
        """End the connection; a second call does nothing."""
