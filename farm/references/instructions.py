"""Guest instructions between two marks: the figure that compares programs on an emulated board.

An aarch64 program runs under QEMU's user mode with the plugin of plugin/count.c, which counts from
`hint #100` to `hint #101`. For one thread the count is exact and the same on every run; for several
it is the sum over all threads and varies with spinning. Instructions are not cycles: every
table notes that beside the figure. Wall time under emulation is never reported.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pockengine.devices.isa import COUNTERS
from pockengine.errors import FarmError
from pockengine.folders import cache_folder

GUEST = "aarch64"
"""Default architecture of programs."""

EMULATOR = COUNTERS[GUEST].emulator

PLUGIN = Path(__file__).parent / "plugin"
PLUGIN_SOURCES = ("count.c", "observer.h", "qemu_plugin.h")
PLUGIN_FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")


@dataclass(frozen=True)
class Observer:
    """An observer linked with the plugin, which sees more than counts (plugin/observer.h).

    `sources` are C files and headers, `arguments` those of the plugin.
    """

    sources: tuple[Path, ...]
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class InstructionCount:
    """Result: guest instructions per marked region, in total, and the output.

    `observed` are the lines that an observer adds to the report.
    """

    regions: tuple[int, ...]
    total: int
    stdout: str
    observed: tuple[str, ...] = ()


@dataclass(frozen=True)
class GuestSystem:
    """A program's environment: the folder with its shared libraries (None: it is static),
    variables.

    Without `environment` it has ours.
    """

    root: Path | None = None
    environment: Mapping[str, str] | None = None


def count(
    command: Sequence[str],
    marks: int | None = None,
    *,
    system: GuestSystem = GuestSystem(),
    timeout: float = 600.0,
    arch: str = GUEST,
    cpu: str | None = None,
    observer: Observer | None = None,
) -> InstructionCount:
    """Run a program of `arch` under emulation and count the instructions of its marked regions.

    `command` is the program with its arguments, `marks` how many regions it is to mark (None: any
    number), `cpu` one other than that of COUNTERS. Raises FarmError if the emulator is missing or
    has no plugins, the program fails, or the marks do not match.
    """
    emulator = COUNTERS[arch].emulator
    with tempfile.TemporaryDirectory(prefix="pockengine-count-") as folder:
        report = Path(folder) / "report"
        full = [*emulator_command(report, system.root, arch, cpu=cpu, observer=observer), *command]
        try:
            done = subprocess.run(
                full, env=system.environment, capture_output=True, text=True, errors="replace",
                timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as expired:
            raise FarmError(f"{command[0]} ran over {timeout:g} s under {emulator}") from expired
        if done.returncode != 0:
            raise FarmError(
                f"{command[0]} ended with status {done.returncode} under {emulator}: "
                f"{done.stderr.strip()[-800:] or 'it printed no error'}"
            )
        regions, total = read_report(report)
        lines = () if observer is None else observed(report)
    if marks is not None and len(regions) != marks:
        raise FarmError(f"{command[0]} marked {len(regions)} regions, {marks} were expected")
    return InstructionCount(regions, total, done.stdout, lines)


def count_twice(
    command: Sequence[str],
    marks: int | None = None,
    arch: str = GUEST,
    cpu: str | None = None,
) -> InstructionCount:
    """Count a single-threaded static program two times; FarmError if the counts differ."""
    first = count(command, marks, arch=arch, cpu=cpu)
    second = count(command, marks, arch=arch, cpu=cpu)
    check_repeated(command[0], first.regions, second.regions)
    return first


def check_repeated(program: str, first: Sequence[int], second: Sequence[int]) -> None:
    """Raise FarmError unless two runs of a program have equal counts."""
    if list(first) != list(second):
        raise FarmError(
            f"{program}: two runs executed {list(first)} and {list(second)} "
            "instructions; a single-threaded program must repeat itself: run it with one thread"
        )


def emulator_command(
    report: Path,
    root: Path | None = None,
    arch: str = GUEST,
    cpu: str | None = None,
    observer: Observer | None = None,
) -> list[str]:
    """Return the emulator's command with the plugin, a prefix of the program's.

    The plugin writes each region to `report` when it closes, for `read_regions` during the run, and
    the remaining counts at the end, for `read_report`.
    """
    counter = COUNTERS[arch]
    emulator = _find(counter.emulator)
    _check_plugins(emulator)
    libraries = [] if root is None else ["-L", str(root)]
    plugin = plugin_argument(report, observer)
    return [emulator, "-cpu", cpu or counter.cpu, "-plugin", plugin, *libraries]


def plugin_argument(report: Path, observer: Observer | None = None) -> str:
    """Return the value of QEMU's option `-plugin`."""
    arguments = {
        "file": plugin_library(() if observer is None else observer.sources),
        "out": report,
        **({} if observer is None else observer.arguments),
    }
    # QEMU splits a plugin's arguments at commas; a doubled one stands for itself.
    return ",".join(f"{key}={str(x).replace(',', ',,')}" for key, x in arguments.items())


def emulator_version() -> str:
    """Return the emulator's version line, which belongs to a count."""
    command = [_find(EMULATOR), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].strip()


def why_not_counted(arch: str = GUEST) -> str | None:
    """Return why the installed emulator cannot count; None if it can, or is not installed."""
    counter = COUNTERS.get(arch)
    emulator = shutil.which(counter.emulator) if counter is not None else None
    try:
        if emulator is not None:
            _check_plugins(emulator)
    except FarmError as error:
        return str(error)
    return None


def _find(emulator: str) -> str:
    path = shutil.which(emulator)
    if path is None:
        raise FarmError(f"{emulator} is not installed; run: apt-get install qemu-user")
    return path


@cache
def _check_plugins(emulator: str) -> None:
    """Raise FarmError for an emulator that was built without TCG plugins; its help has no option.

    Static builds cannot load any: those of Debian since 13 are static.
    """
    shown = subprocess.run([emulator, "-h"], capture_output=True, text=True, check=False)
    if re.search(r"^-plugin\b", shown.stdout, re.MULTILINE) is None:
        name = Path(emulator).name
        raise FarmError(
            f"{emulator} was built without TCG plugins, which count instructions; put one that has "
            f"them first on PATH: QEMU 7.2 of Debian 12, or of sources by ./configure "
            f"--enable-plugins --target-list={name.removeprefix('qemu-')}-linux-user"
        )


def read_report(report: Path) -> tuple[tuple[int, ...], int]:
    """Read the plugin's report: instructions per region, and in all; FarmError if it is none."""
    try:
        lines = report.read_text().splitlines()
    except FileNotFoundError:
        raise FarmError(
            f"{EMULATOR} wrote no instruction count; it needs plugins, as QEMU 7.2's user mode has "
            "(the program may also have been killed, or have replaced itself by another)"
        ) from None
    if lines and lines[0].startswith("error "):
        raise FarmError(f"instructions cannot be counted: {lines[0].removeprefix('error ')}")
    fields = [line.split() for line in lines]
    if fields[-1:] != [["end"]] or len(fields[-2:-1]) != 1 or fields[-2][0] != "total":
        raise FarmError(f"the instruction count in {report} is cut off; was the program killed?")
    try:
        counts = tuple(int(line[1]) for line in fields[:-2] if line[0] == "region")
        return counts, int(fields[-2][1])
    except (ValueError, IndexError):
        raise FarmError(f"the instruction count in {report} is damaged: {lines[:3]}") from None


def observed(report: Path) -> tuple[str, ...]:
    """Return the lines of a report that an observer has added so far."""
    own = ("region", "total", "end")
    if not report.exists():
        return ()
    return tuple(line for line in report.read_text().splitlines() if line.split()[0] not in own)


def read_regions(report: Path) -> tuple[int, ...]:
    """Read the regions that a running program has closed so far."""
    try:
        lines = report.read_text().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(int(line.removeprefix("region ")) for line in lines if line.startswith("region "))


def plugin_library(observer: Sequence[Path] = ()) -> Path:
    """Return the plugin, built once by this machine's C compiler and kept by the sources' hash.

    `observer` are sources and headers linked with it.
    """
    sources = [*(PLUGIN / name for name in PLUGIN_SOURCES), *observer]
    digest = hashlib.sha256(" ".join(PLUGIN_FLAGS).encode())
    for source in sources:
        digest.update(source.read_bytes())
    library = cache_folder() / "plugin" / f"count-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        _build_plugin([str(source) for source in sources if source.suffix == ".c"], library)
    return library


def _build_plugin(sources: Sequence[str], library: Path) -> None:
    """Compile the plugin beside its place and move it there: a half one is never loaded."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder) / library.name
        command = [*_host_compiler(), *PLUGIN_FLAGS, f"-I{PLUGIN}", *sources, "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FarmError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
        os.replace(built, library)


def _host_compiler() -> list[str]:
    """Return a C compiler for this machine: its own, or the ziglang wheel's."""
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return [path]
    zig = [sys.executable, "-m", "ziglang", "cc"]
    if subprocess.run([*zig, "--version"], capture_output=True, check=False).returncode == 0:
        return zig
    raise FarmError("no C compiler for QEMU's plugin; run: apt-get install gcc")
