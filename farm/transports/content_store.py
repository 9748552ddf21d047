"""Content-addressed files of a board: `cas/<sha256>` in its work folder, each sent once.

A file is linked from there to its destination. It is uploaded under a temporary name and renamed
once its hash is verified.
"""

import errno
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from pockengine.errors import FarmError, LogError
from pockengine.farm.transports.digest import printed_sha256, sha256_of
from pockengine.farm.transports.transport import Progress, RunResult

COUNT = re.compile(rb"\s*(\d{1,18})\s")
FREE = re.compile(rb"\s\d{1,18}\s+\d{1,18}\s+(\d{1,18})\s+\d{1,3}%\s[^\n]*\n?\Z")  # df -P

OUR_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
"""Errors of writing a fetched file: faults of this machine, not of the board."""

Send = Callable[[Path, str, Progress | None], str]
"""Writes a file to a path of the board; returns what went wrong, which its hash shows."""


class Run(Protocol):
    """Runs a command on the board."""

    def __call__(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> RunResult:
        """Run it as Transport.run does."""


def disk_fault(target: Path, reason: str) -> LogError:
    """Return the error for a fetched file that this machine cannot store."""
    return LogError(
        f"{target} cannot be written: {reason}; make room on this machine, then run it again"
    )


class ContentStore:
    """The store of one board; `link` is the command that links a stored file to another path."""

    def __init__(
        self, board: str, workdir: str, run: Run, send: Send, link: Sequence[str] = ("ln", "-f")
    ) -> None:
        self._board = board
        self._workdir = workdir
        self._run = run
        self._send = send
        self._link = tuple(link)

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Send a file unless it is stored, then link it; False when nothing had to be sent."""
        digest = sha256_of(source)
        stored = f"{self._workdir}/cas/{digest}"
        absent = self._digest(stored) != digest
        if absent:
            self._upload(source, stored, digest, progress)
        self._expect([*self._link, stored, target])
        return absent

    def accept(self, part: Path, source: str, reason: str, complete: bool) -> None:
        """Compare a downloaded file's hash with the board's; FarmError if they differ."""
        expected, actual = self._digest(source), sha256_of(part)
        if not complete or expected is None:
            raise FarmError(f"{self._board}: cannot download {source}: {reason.strip()}")
        if expected != actual:
            raise FarmError(
                f"{self._board}: download of {source} arrived damaged: "
                f"sha256 {actual} instead of {expected}; fetch it again"
            )

    def _upload(self, source: Path, stored: str, digest: str, progress: Progress | None) -> None:
        """Upload to a temporary name, compare size and hash, then rename in one step."""
        size = source.stat().st_size
        part = f"{stored}.{token_hex(4)}.part"
        self._check_room(source, part, size)
        reason = self._send(source, part, progress)
        if self._digest(part) != digest:
            self._refuse(source, part, size, f" ({reason})" if reason else "")
        self._expect(["chmod", "755", part])
        self._expect(["mv", "-f", part, stored])

    def _refuse(self, source: Path, part: str, size: int, reason: str) -> None:
        """Remove an incomplete upload and raise FarmError: the disk is full or data are damaged."""
        there = COUNT.match(self._run(["wc", "-c", part]).stdout)
        arrived = int(there[1]) if there else 0
        self._run(["rm", "-f", part])
        self._check_room(source, part, size)
        raise FarmError(
            f"{self._board}: upload of {source} arrived damaged{reason}: {arrived} of {size} "
            "bytes, with another sha256; run again"
        )

    def _digest(self, path: str) -> str | None:
        result = self._run(["sha256sum", path], timeout_s=300)
        return printed_sha256(result.stdout) if result.ok else None

    def _check_room(self, source: Path, part: str, size: int) -> None:
        """Raise FarmError when `df` says that fewer than `size` bytes are free beside `part`."""
        folder = part.rpartition("/")[0]
        table = self._expect(["df", "-P", "-k", folder]).stdout
        row = FREE.search(table)
        if row is None:
            raise FarmError(f"{self._board}: df says {table[:80]!r} of {folder}, which is no table")
        free = int(row[1]) * 1024
        if free < size:
            raise FarmError(
                f"{self._board}: disk full: {source.name} needs {size} bytes in {folder}, "
                f"{free} are free; remove files there or use a board with a larger disk"
            )

    def _expect(self, argv: Sequence[str]) -> RunResult:
        result = self._run(argv)
        if not result.ok:
            raise FarmError(f"{self._board}: {shlex.join(argv)}: {result.describe()}")
        return result
