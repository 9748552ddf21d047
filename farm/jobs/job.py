"""Run one program on one board: upload files, download outputs, clean up.

A job has its own folder on the board. Uploaded files are verified by hash before anything runs.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex

from pockengine.errors import BoardUnreachable, FarmError, JobFailed
from pockengine.farm.transports.digest import printed_sha256, sha256_of
from pockengine.farm.transports.limits import CommandLimits
from pockengine.farm.transports.transport import Progress, RunResult, Sink, Transport

PROGRAM = "program"
JOB_LIMITS = CommandLimits(output_bytes=16 << 20, within_free=True)

# Kills all processes with a working folder in the job's, even outside its process group, then
# removes the folder. A system without /proc does not list them; there the time limit ends them.
CLEAN = r"""
real=$(cd "$1" 2>/dev/null && pwd -P) || real=$1  # /proc has no symbolic links
ls -l /proc/[0-9]*/cwd 2>/dev/null | while read -r line; do
  case $line in
    *"-> $real" | *"-> $real/"* | *"-> $real (deleted)")
      pid=${line#*/proc/}; kill -9 "${pid%%/*}" ;;
  esac
done
rm -rf -- "$1"
"""


@dataclass(frozen=True)
class Job:
    """A program to run, with files by name in the job's folder.

    The shared `libraries` take precedence over the board's own. FarmError for a file's name that is
    not plain or is the program's, and for a time limit that is not positive and finite.
    """

    program: Path
    args: tuple[str, ...] = ()
    inputs: Mapping[str, Path] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    time_limit_s: float = 600.0
    limits: CommandLimits = JOB_LIMITS
    libraries: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.inputs, *self.libraries, *self.outputs):
            _check_name(name)
        if PROGRAM in {*self.inputs, *self.libraries}:
            raise FarmError(f"an input cannot be named {PROGRAM!r}, as the job's program is")
        if not (self.time_limit_s > 0 and math.isfinite(self.time_limit_s)):
            raise FarmError(
                f"time_limit_s must be a positive number of seconds, not {self.time_limit_s}"
            )


@dataclass(frozen=True)
class JobResult:
    """Result: how the program ended, and the local paths of its outputs."""

    run: RunResult
    outputs: Mapping[str, Path]


def run_job(
    transport: Transport,
    job: Job,
    into: Path,
    progress: Progress | None = None,
    sink: Sink | None = None,
) -> JobResult:
    """Run a job and fetch its output files into the folder `into`; `sink` gets its live output.

    Raise JobFailed if the program fails, is killed, takes too long or lacks an output file, or if
    a file to upload cannot be read; BoardUnreachable or FarmError if the board is at fault.
    """
    files = {PROGRAM: job.program, **job.inputs, **job.libraries}
    with _folder(transport) as folder:
        with _jobs_fault(files), _boards_fault():
            for name, source in files.items():
                transport.put(source, f"{folder}/{name}", progress)
            _verify(transport, folder, files)
        found = ["env", f"LD_LIBRARY_PATH={folder}"] if job.libraries else []
        run = transport.run(
            [*found, *transport.launcher, f"{folder}/{PROGRAM}", *job.args],
            cwd=folder,
            timeout_s=job.time_limit_s,
            limits=_limits(transport, job),
            sink=sink,
        )
        if not run.ok:
            text = f"{transport.board}: {job.program.name} failed: {run.describe()}"
            raise JobFailed(text, run.stdout, run.stderr)
        try:
            return JobResult(run, _fetch(transport, job, folder, into))
        except JobFailed as error:
            raise JobFailed(str(error), run.stdout, run.stderr) from None


def clean_board(transport: Transport) -> None:
    """Kill and remove leftovers of jobs whose connection was lost; FarmError if that fails.

    Requires exclusive use of the board.
    """
    with _boards_fault():
        done = transport.run(["sh", "-c", CLEAN, "clean", f"{transport.workdir}/jobs"])
    if not done.ok:
        raise FarmError(f"{transport.board}: cannot remove old jobs: {done.describe()}")


def _limits(transport: Transport, job: Job) -> CommandLimits:
    """Return the job's limits; an emulator itself needs gigabytes of address space."""
    return replace(job.limits, memory_bytes=1 << 40) if transport.launcher else job.limits


def _check_name(name: str) -> None:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise FarmError(f"{name!r} cannot be a file of a job; give a plain name without a folder")


@contextlib.contextmanager
def _boards_fault() -> Iterator[None]:
    """Blame the board, not the job, if one of our own commands exceeds its limits."""
    try:
        yield
    except JobFailed as error:
        raise FarmError(str(error)) from None


@contextlib.contextmanager
def _jobs_fault(files: Mapping[str, Path]) -> Iterator[None]:
    """Blame the job for a file of this machine that is gone or cannot be read."""
    try:
        yield
    except OSError as error:
        if error.filename not in {*files.values(), *map(str, files.values())}:
            raise
        raise JobFailed(f"{error.filename} cannot be read: {error.strerror}", b"", b"") from None


@contextlib.contextmanager
def _folder(transport: Transport) -> Iterator[str]:
    """Create the job's folder on the board and remove it afterwards."""
    folder = f"{transport.workdir}/jobs/{token_hex(8)}"
    with _boards_fault():
        result = transport.run(["mkdir", "-p", folder])
    if not result.ok:
        raise FarmError(f"{transport.board}: cannot make {folder}: {result.describe()}")
    try:
        yield folder
    finally:
        # after a lost connection the removal fails too; report the first error only
        with contextlib.suppress(BoardUnreachable, JobFailed):
            transport.run(["sh", "-c", CLEAN, "clean", folder])


def _verify(transport: Transport, folder: str, files: Mapping[str, Path]) -> None:
    """Raise FarmError if a file in the job's folder differs from the local one."""
    for name, source in files.items():
        result = transport.run(["sha256sum", f"{folder}/{name}"], timeout_s=300)
        if printed_sha256(result.stdout) != sha256_of(source):
            raise FarmError(
                f"{transport.board}: {name} in {folder} is not {source}; the board's storage or "
                f"its store of files is damaged: remove {transport.workdir} there"
            )


def _fetch(transport: Transport, job: Job, folder: str, into: Path) -> dict[str, Path]:
    into.mkdir(parents=True, exist_ok=True)
    fetched = {}
    for name in job.outputs:
        with _boards_fault():
            there = transport.run(["test", "-f", f"{folder}/{name}"]).ok
        if not there:
            raise JobFailed(f"{transport.board}: {job.program.name} did not write {name!r}")
        transport.get(f"{folder}/{name}", into / name)
        fetched[name] = into / name
    return fetched
