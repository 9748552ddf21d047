"""Log of one run: requests to the board, one JSON object per line, and the console's output.

The log has commands and their status, never their output, keys or passwords.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.results.results import now
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.transport import (
    PowerAction,
    Progress,
    RunResult,
    Sink,
    Transport,
)

CONSOLE_TAIL = 1 << 20  # characters


class LoggedTransport:
    """A transport that logs its requests; see transport.Transport."""

    def __init__(self, transport: Transport, file: Path) -> None:
        self._transport = transport
        self._file = file
        self.board = transport.board
        self.workdir = transport.workdir
        self.launcher = transport.launcher

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a command and log its status."""
        with self._entry("run", argv=list(argv), cwd=cwd) as entry:
            result = self._transport.run(
                argv, cwd=cwd, timeout_s=timeout_s, limits=limits, sink=sink
            )
            entry |= {"status": result.status, "signal": result.signal}
            entry |= {"stdout_bytes": len(result.stdout), "stderr_bytes": len(result.stderr)}
            return result

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Send a file and log whether it was transferred."""
        with self._entry("put", source=str(source), target=target) as entry:
            entry["sent"] = self._transport.put(source, target, progress)
            return bool(entry["sent"])

    def get(self, source: str, target: Path) -> None:
        """Fetch a file and log it."""
        with self._entry("get", source=source, target=str(target)):
            self._transport.get(source, target)

    def console(self) -> str:
        """Return the console's output."""
        return self._transport.console()

    def power(self, action: PowerAction) -> None:
        """Switch the board's power and log it."""
        with self._entry("power", action=action):
            self._transport.power(action)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    @contextmanager
    def _entry(self, what: str, **values: object) -> Iterator[dict[str, object]]:
        entry: dict[str, object] = {"time": now(), "do": what, **values}
        start = time.monotonic()
        try:
            yield entry
        except FarmError as error:
            entry["error"] = str(error).splitlines()[0]
            raise
        finally:
            entry["took_s"] = round(time.monotonic() - start, 3)
            with self._file.open("a") as stream:
                stream.write(json.dumps(entry) + "\n")


@contextmanager
def logged(transport: Transport, folder: Path) -> Iterator[LoggedTransport]:
    """Log to `folder`: ssh.jsonl during the run, and console.log with the console's output."""
    folder.mkdir(parents=True, exist_ok=True)
    before = len(transport.console())
    try:
        yield LoggedTransport(transport, folder / "ssh.jsonl")
    finally:
        with suppress(FarmError, OSError):
            text = transport.console()[before:][-CONSOLE_TAIL:]
            (folder / "console.log").write_text(text)
