"""The transport interface of a board: run, put, get, console, power, close.

Every kind of board has the same interface, so jobs are independent of it. Commands are argument
lists, never shell text, so names cannot inject commands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits

# Called during a transfer with the bytes moved so far and the bytes in all.
Progress = Callable[[int, int], None]
PowerAction = Literal["on", "off", "cycle"]
StreamName = Literal["stdout", "stderr"]
# Called with output as it arrives: pieces of any size, cut anywhere.
Sink = Callable[[StreamName, bytes], object]


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
        """Summarize in one line how it ended, with the last line of stderr, apart from usage."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        while len(lines) > 1 and lines[-1].lower().startswith("usage:"):
            lines.pop()
        tail = f": {printable(lines[-1][:200])}" if lines else ""
        if self.signal:
            return f"killed by signal {self.signal}{tail}"
        return f"exit status {self.status}{tail}"


@dataclass(frozen=True)
class Output:
    """Output of a command: stored, and passed to a sink as it arrives."""

    sink: Sink | None = None
    captured: dict[StreamName, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )

    def take(self, stream: StreamName, data: bytes) -> None:
        """Add output of a stream."""
        self.captured[stream] += data
        if self.sink is not None and data:
            self.sink(stream, data)

    def both(self) -> tuple[bytes, bytes]:
        """Return standard output and error."""
        return bytes(self.captured["stdout"]), bytes(self.captured["stderr"])


def printable(text: str) -> str:
    """Return a board's text without terminal control characters."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


class Transport(Protocol):
    """An open connection to one board. Errors are FarmError and below, naming the board."""

    board: str
    workdir: str  # absolute path of the folder on the board in which jobs may write
    launcher: tuple[str, ...]  # command prefix that starts programs of the device; usually empty

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a command; kill it and raise JobFailed if it exceeds its time or output limit.

        `sink` gets its output while it runs, before an error too; an exception from it ends the
        command.
        """

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Make `target` (absolute, executable) the same bytes as `source`.

        Return False when nothing had to be sent. The file is there whole or not at all.
        """

    def get(self, source: str, target: Path) -> None:
        """Copy a file of the board to this machine, whole or not at all."""

    def console(self) -> str:
        """Return the serial console's output so far; empty if there is none."""

    def power(self, action: PowerAction) -> None:
        """Switch the board; after "on" and "cycle" it has booted and the connection is new.

        FarmError if nothing can switch it, BoardUnreachable when it does not come back.
        """

    def close(self) -> None:
        """End the connection; a second call does nothing."""
