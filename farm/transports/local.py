"""This machine as a board, through the same protocol as any other."""

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pockengine.errors import FarmError, JobFailed
from pockengine.farm.transports.digest import sha256_of
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.transport import (
    Output,
    PowerAction,
    Progress,
    RunResult,
    Sink,
)


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
        start, output = time.monotonic(), Output(sink)
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
            # What a shell on any other board answers for a command it cannot start.
            text = f"{argv[0]}: {error.strerror}".encode()
            return RunResult(tuple(argv), 127, None, b"", text, time.monotonic() - start)
        try:
            _collect(process, start + timeout_s, output, limits.output_bytes)
        except TimeoutError:
            raise JobFailed(
                f"{self.board}: {argv[0]!r} did not end within {timeout_s:g} s and was killed"
            ) from None
        except OverflowError:
            raise JobFailed(
                f"{self.board}: {argv[0]!r} printed more than {limits.output_bytes} bytes "
                "and was stopped"
            ) from None
        finally:
            _end_group(process)
        status, name = _ending(process.returncode)
        return RunResult(tuple(argv), status, name, *output.both(), time.monotonic() - start)

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
        """Return nothing: this machine's console is not ours to read."""
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


def _collect(process: subprocess.Popen[bytes], deadline: float, output: Output, limit: int) -> None:
    """Read both streams to their ends; TimeoutError, or OverflowError beyond `limit` bytes."""
    assert process.stdout is not None  # both were asked for
    assert process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                output.take(key.data, data)
                if not data:
                    selector.unregister(key.fileobj)
                if len(output.kept[key.data]) > limit:
                    raise OverflowError
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the command, also on Ctrl-C, and reap it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _ending(returncode: int) -> tuple[int | None, str | None]:
    if returncode >= 0:
        return returncode, None
    try:
        return None, signal.Signals(-returncode).name
    except ValueError:  # a real-time signal has no name in Python
        return None, f"SIG{-returncode}"
