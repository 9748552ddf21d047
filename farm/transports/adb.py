"""A phone through adb: its shell, its files, its reboot.

Programs run as Android's user `shell`, from a folder below /data/local/tmp. There is no root and no
hard link in that folder, so stored files use symbolic links. A command's status follows a
mark on standard error: adb's own output or status is never mistaken for the program's.
"""

import math
import os
import shlex
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex

from pockengine.errors import BoardUnreachable, FarmError, JobFailed, reason_of
from pockengine.farm.transports import ssh_ready
from pockengine.farm.transports.adb_client import WORKDIR, AdbAddress, AdbClient
from pockengine.farm.transports.content_store import OUR_DISK, ContentStore, disk_fault
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.marked import OutputStream, marking, quiet
from pockengine.farm.transports.transport import Output, PowerAction, Progress, RunResult, Sink

GRACE_S = 10.0
READY_S = 60.0
TRANSFER_S = 3600.0
BOOT_S = 300.0
SHELL = ("shell", "-n", "-T")
MOST_STATUS_BYTES = 8

# Toybox's `timeout` of 2023 returns 127 instead of the status of a command that exits at once, so
# the shell itself implements the time limit. The watchdog keeps no output open and sleeps briefly,
# so that it leaves no long sleep behind when it is killed. A shell may lose a signal while it
# starts a process, so the watchdog also exits by itself once the program has ended.
LIMITED = """({text}
) & program=$!
(exec < /dev/null > /dev/null 2>&1; left={limit}
while [ $left -gt 0 ] && kill -0 $program; do
  nap=5; [ $left -gt 5 ] || nap=$left
  sleep $nap; left=$((left - nap))
done; [ $left -gt 0 ] || kill -9 $program) & watch=$!
wait $program; status=$?; kill $watch 2> /dev/null; echo {mark}-status $status >&2"""

# Linux's numbers: a shell reports a command that a signal ended as 128 and the number.
SIGNALS = {
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}


class StatusStream:
    """Forwards a stream without its last line, which has a mark and the command's status."""

    def __init__(self, mark: bytes, output: OutputStream) -> None:
        self._mark = mark
        self._output = output
        self._pending = bytearray()

    def take(self, data: bytes) -> None:
        """Forward data, except what may be the start of the mark."""
        self._pending += data
        at = self._pending.find(self._mark)
        ready = at if at >= 0 else max(0, len(self._pending) - len(self._mark))
        self._output.take(bytes(self._pending[:ready]))
        del self._pending[:ready]

    def status(self) -> int | None:
        """Return the status after the end of the stream; None if there was none."""
        text = bytes(self._pending).removeprefix(self._mark).strip()
        if (
            self._pending.startswith(self._mark)
            and text.isdigit()
            and len(text) < MOST_STATUS_BYTES
        ):
            return int(text)
        self._output.take(bytes(self._pending))
        return None


class AdbTransport:
    """An open phone; see transport.Transport for its contract.

    Status 128 and the number of a signal counts as a signal. `launcher` starts programs on an
    emulated phone.
    """

    def __init__(self, address: AdbAddress, launcher: Sequence[str] = ()) -> None:
        self.board = address.board
        self.workdir = address.workdir
        self.launcher = tuple(launcher)
        self._client = AdbClient(address)
        self._client.connect()
        self._check_ready()
        link = ("ln", "-sf")
        self._store = ContentStore(self.board, self.workdir, self.run, send=self._send, link=link)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a command; the phone ends it at the time-out, also without a connection."""
        folder = shlex.quote(cwd or "/")
        line = f"cd {folder} && {{ {limits.shell()}exec {shlex.join(argv)}; }}"
        return self._say(line, argv, timeout_s, limit=limits.output_bytes, sink=sink)

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Send a file unless the phone's store has it, then link it to its destination."""
        return self._store.put(source, target, progress)

    def get(self, source: str, target: Path) -> None:
        """Pull a file through a temporary name and compare its hash with the phone's.

        LogError if this machine's disk is full: the phone is not at fault.
        """
        part = target.with_name(f".{target.name}.part")
        try:
            words = self._client.call("pull", source, str(part.absolute()), timeout_s=TRANSFER_S)
            if reason := next((text for text in map(os.strerror, OUR_DISK) if text in words), ""):
                raise disk_fault(target, reason)
            if not part.is_file():
                raise FarmError(f"{self.board}: cannot download {source}: {words.strip()[-300:]}")
            self._store.accept(part, source, words, complete=True)
            part.replace(target)
        except OSError as error:
            raise FarmError(f"{self.board}: cannot download {source}: {reason_of(error)}") from None
        finally:
            part.unlink(missing_ok=True)

    def console(self) -> str:
        """Return nothing: a phone has no serial console."""
        return ""

    def power(self, action: PowerAction) -> None:
        """Reboot the phone for "cycle"; FarmError for other actions, which need its button."""
        if action != "cycle":
            raise FarmError(f"{self.board}: adb cannot switch a phone {action}; use its button")
        self._client.call("reboot")
        time.sleep(GRACE_S)  # it still answers for a moment
        self._client.connect(BOOT_S)
        deadline = time.monotonic() + BOOT_S
        while self.run(["getprop", "sys.boot_completed"]).stdout.strip() != b"1":
            if time.monotonic() > deadline:
                raise BoardUnreachable(f"{self.board} did not boot within {BOOT_S:g} s")
            time.sleep(1)

    def close(self) -> None:
        """Do nothing: each command has a connection of its own."""

    def _send(self, source: Path, part: str, progress: Progress | None) -> str:
        """Push a file; return adb's error message if it failed."""
        words = self._client.call("push", str(source.absolute()), part, timeout_s=TRANSFER_S)
        if progress:
            size = source.stat().st_size
            progress(size, size)
        return words.strip()[-300:]

    def _check_ready(self) -> None:
        """Create the work folder; FarmError names what the phone lacks."""
        text = f"set -- {shlex.quote(self.workdir)}; {ssh_ready.PRIVATE}"
        result = self._say(text, ["sh"], READY_S, 1 << 20)
        if not result.ok:
            raise FarmError(
                f"{self.board}: its work folder cannot be used: {result.describe()}; give the "
                f"board another workdir, such as {WORKDIR}"
            )
        answer = result.stdout.decode(errors="replace")
        ssh_ready.read_ready(answer, self.board, self.workdir)

    def _say(
        self,
        text: str,
        argv: Sequence[str],
        timeout_s: float,
        limit: int,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a POSIX script, named `argv` in errors; retry if it could not start."""
        start, output = time.monotonic(), Output(sink)
        call = _Call(f"{self.board}: {argv[0]!r}", limit, output)
        words = call.make(self._client, text, timeout_s)
        if not call.started:
            self._client.connect()  # raises the error if it persists
            call = _Call(f"{self.board}: {argv[0]!r}", limit, output)
            words = call.make(self._client, text, timeout_s)
        status = call.stderr.status()
        took = time.monotonic() - start
        if status is None:
            raise BoardUnreachable(f"{self.board}: connection lost in {argv[0]!r}: {words}")
        signal = SIGNALS.get(status - 128)
        if took >= timeout_s and signal == "SIGKILL":
            raise JobFailed(
                f"{self.board}: {argv[0]!r} did not end within {timeout_s:g} s and was killed"
            )
        status = None if signal else status
        return RunResult(tuple(argv), status, signal, *output.both(), duration_s=took)


class _Call:
    """One run of a script; its output streams start after unique marks."""

    def __init__(self, what: str, limit: int, output: Output) -> None:
        self._mark = f"pockengine-{token_hex(8)}"
        mark = f"{self._mark}\n".encode()
        self._stdout = OutputStream(what, mark, limit, partial(output.take, "stdout"))
        self._stderr = OutputStream(what, mark, limit, partial(output.take, "stderr"))
        self.stderr = StatusStream(f"{self._mark}-status ".encode(), self._stderr)

    @property
    def started(self) -> bool:
        """Whether the script started."""
        return self._stdout.started

    def make(self, client: AdbClient, text: str, timeout_s: float) -> str:
        """Run the script; return adb's own messages, or a note that there was no output."""
        limit = max(1, math.ceil(timeout_s))
        body = LIMITED.format(text=quiet(text), limit=limit, mark=self._mark)
        try:
            client.stream(
                [*SHELL, marking(self._mark, body)],
                timeout_s + GRACE_S,
                self._stdout.take,
                self.stderr.take,
            )
        except TimeoutError:
            return "the phone stopped answering"
        answer = (
            b"".join((self._stdout.before, self._stderr.before)).decode(errors="replace").strip()
        )
        return answer.splitlines()[-1] if answer else "no exit status came"
