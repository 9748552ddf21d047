"""This machine as a board, through the same protocol as any other."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pockengine.errors import FarmError, JobFailed
from pockengine.farm.transports.child import collect, end_group
from pockengine.farm.transports.digest import sha256_of
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.transport import (
    Output,
    PowerAction,
    Progress,
    RunResult,
    Sink,
    StreamName,
)

Take = Callable[[bytes], None]


class LocalTransport:
    """Run commands as child processes; the work folder is a new temporary one."""

    def __init__(self, board: str) -> None:
        self.board = board
        self.launcher: tuple[str, ...] = ()
        self.workdir = tempfile.mkdtemp(prefix="pockengine-")

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a command in a process group of its own, which is killed at the time-out."""
        start, output, title = time.monotonic(), Output(sink), f"{self.board}: {argv[0]!r}"
        try:
            process = subprocess.Popen(
                _limited(argv, limits),
                cwd=cwd or self.workdir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            # A shell's exit status on other boards for a command it cannot start.
            text = f"{argv[0]}: {error.strerror}".encode()
            took = time.monotonic() - start
            return RunResult(tuple(argv), 127, None, b"", stderr=text, duration_s=took)
        try:
            collect(process, start + timeout_s, *_limiting(output, limits.output_bytes))
        except TimeoutError:
            raise JobFailed(f"{title} did not end within {timeout_s:g} s and was killed") from None
        except OverflowError:
            raise JobFailed(
                f"{title} printed more than {limits.output_bytes} bytes and was stopped"
            ) from None
        finally:
            end_group(process)
        status, name = _ending(process.returncode)
        took = time.monotonic() - start
        return RunResult(tuple(argv), status, name, *output.both(), duration_s=took)

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Copy a file; False when the same bytes are there already."""
        digest, there = sha256_of(source), Path(target)
        if there.is_file() and sha256_of(there) == digest:
            return False
        self._copy(source, there, f"copy of {source} to {target}")
        if sha256_of(there) != digest:
            raise FarmError(
                f"{self.board}: copy of {source} to {target} is damaged; check the disk"
            )
        there.chmod(0o755)
        if progress:
            size = there.stat().st_size
            progress(size, size)
        return True

    def get(self, source: str, target: Path) -> None:
        """Copy a file out of the work folder."""
        self._copy(Path(source), target, f"copy of {source} to {target}")

    def console(self) -> str:
        """Return nothing: this machine's console cannot be read."""
        return ""

    def power(self, action: PowerAction) -> None:
        """Refuse: it is this machine."""
        raise FarmError(f"{self.board}: this machine is not switched {action} by its own farm")

    def close(self) -> None:
        """Remove the work folder."""
        shutil.rmtree(self.workdir, ignore_errors=True)

    def _copy(self, source: Path, target: Path, what: str) -> None:
        """Copy through a temporary name, so that the target is whole or absent."""
        part = target.with_name(f".{target.name}.part")
        try:
            shutil.copyfile(source, part)
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            free = shutil.disk_usage(self.workdir).free
            raise FarmError(
                f"{self.board}: {what} failed: {error.strerror} ({free} bytes are free)"
            ) from None


def _limited(argv: Sequence[str], limits: CommandLimits) -> list[str]:
    """Return the command under a shell that sets its limits; without limits as it is."""
    text = limits.shell()
    return ["sh", "-c", f'{text}exec "$@"', "sh", *argv] if text else list(argv)


def _limiting(output: Output, limit: int) -> tuple[Take, Take]:
    """Return what takes both streams."""
    return partial(_limit, output, "stdout", limit), partial(_limit, output, "stderr", limit)


def _limit(output: Output, stream: StreamName, limit: int, data: bytes) -> None:
    """Take output; OverflowError beyond `limit` bytes."""
    output.take(stream, data)
    if len(output.captured[stream]) > limit:
        raise OverflowError


def _ending(returncode: int) -> tuple[int | None, str | None]:
    if returncode >= 0:
        return returncode, None
    try:
        return None, signal.Signals(-returncode).name
    except ValueError:  # a real-time signal has no name in Python
        return None, f"SIG{-returncode}"
