"""Live output of a job: complete in a file per stream, and line by line on a display.

The display is limited to MOST_LINE characters per line and MOST_A_SECOND lines per second and job.
The files are complete.
"""

import codecs
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pockengine.errors import LogError
from pockengine.farm.transports.transport import Sink, StreamName

MOST_LINE = 500
MOST_A_SECOND = 40

Show = Callable[[str], None]


class Lines:
    """Splits a UTF-8 byte stream, cut anywhere, into lines.

    Buffers less than MOST_LINE characters.
    """

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._open = ""

    def take(self, data: bytes, final: bool = False) -> Iterator[str]:
        """Yield lines completed by `data`; if `final`, also the unterminated last line."""
        *lines, self._open = (self._open + self._decoder.decode(data, final)).split("\n")
        for line in lines:
            yield from _pieces(line)
        while len(self._open) >= MOST_LINE:
            yield self._open[:MOST_LINE]
            self._open = self._open[MOST_LINE:]
        if final and self._open:
            yield self._open


class JobOutput:
    """A sink for one job: writes files in a folder, and passes lines to `show`."""

    def __init__(self, name: str, folder: Path, show: Show) -> None:
        self._name, self._folder, self._show = name, folder, show
        names: tuple[StreamName, ...] = ("stdout", "stderr")
        self._files = {stream: (folder / stream).open("wb", buffering=0) for stream in names}
        self._lines = {stream: Lines() for stream in names}
        self._second, self._shown, self._hidden = 0, 0, 0

    def take(self, stream: StreamName, data: bytes, final: bool = False) -> None:
        """Write and display new output."""
        self._files[stream].write(data)
        for line in self._lines[stream].take(data, final):
            self._show_line(line)

    def close(self) -> None:
        """Display an unterminated line, and close the files."""
        for stream, file in self._files.items():
            with file:
                self.take(stream, b"", final=True)
        self._show_hidden()

    def _show_line(self, line: str) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._show_hidden()
            self._second, self._shown = second, 0
        if self._shown == MOST_A_SECOND:
            self._hidden += 1
            return
        self._shown += 1
        self._show(f"{self._name} | {line}")

    def _show_hidden(self) -> None:
        if self._hidden:
            self._show(f"{self._name} | ... {self._hidden} lines more, in {self._folder}")
        self._hidden = 0


@contextmanager
def job_output(name: str, folder: Path, show: Show) -> Iterator[Sink]:
    """Yield a sink that writes and displays a job's output; LogError if writing fails."""
    with _log_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        output = JobOutput(name, folder, show)

    def take(stream: StreamName, data: bytes) -> None:
        with _log_errors(folder):
            output.take(stream, data)

    try:
        yield take
    finally:
        with _log_errors(folder):
            output.close()


@contextmanager
def _log_errors(folder: Path) -> Iterator[None]:
    """Turn local write failures into LogError: a transport would blame its connection."""
    try:
        yield
    except OSError as error:
        raise LogError(
            f"cannot write or show the log in {folder}: {error.strerror or error}; make room "
            "there, then resume the batch by its name: run FILE --batch NAME"
        ) from error


def _pieces(line: str) -> Iterator[str]:
    """Yield a line in pieces of at most MOST_LINE characters; an empty line gives one piece."""
    for start in range(0, max(1, len(line)), MOST_LINE):
        yield line[start : start + MOST_LINE]
