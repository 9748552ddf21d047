"""`pockengine doctor`: what is installed, whether it trains, and how to install what is missing."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from shutil import which

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine import __version__
from pockengine.backends.native.decoder import INSTALL, find_decoder
from pockengine.cli.one_layer import LAYERS
from pockengine.cli.options import json_option, print_json
from pockengine.extras import EXTRAS, TASKS, missing, pip_command
from pockengine.terminal import PlainConsole

WIDTH = 200
OLDEST = (3, 11)
TRIAL_SECONDS = 600
"""A framework's import and zig's first build of a C library take minutes on a slow machine."""


@dataclass(frozen=True)
class Finding:
    """A dependency of a task; `needed` if nothing can be built without it.

    `works` is False if a framework is installed but one layer of it does not train.
    """

    name: str
    what: str
    found: bool
    detail: str
    needed: bool = False
    works: bool = True


@dataclass(frozen=True)
class Tool:
    """An optional program, and the command that installs it."""

    program: str
    what: str
    command: str


TOOLS = (
    Tool("ssh", "logging in to boards by hand", "apt-get install openssh-client"),
    Tool("qemu-system-aarch64", "emulated boards", "apt-get install qemu-system-arm"),
    Tool("qemu-aarch64", "counting instructions", "apt-get install qemu-user"),
    Tool("qemu-hexagon", "the emulated Snapdragon DSP", "apt-get install qemu-user"),
    Tool("node", "WebAssembly", "apt-get install nodejs"),
    Tool("adb", "phones", "apt-get install adb"),
    Tool("git", "commits in records, compare, history", "apt-get install git"),
)


@click.command()
@click.option("--quick", is_flag=True, help="Skip training a layer with each framework.")
@json_option
def doctor(quick: bool, as_json: bool) -> None:
    """List installed and missing components, and the command that installs each.

    Compiles and trains one layer of each framework that is installed. The exit status is 1 if one
    of them fails, or if nothing can be built: no C compiler, or a Python that is too old.
    """
    findings = findings_of()
    if not quick:
        findings = [_tried(finding) for finding in findings]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table(box=SIMPLE)
        for heading in ("", "", "for", "found, or how to get it"):
            table.add_column(heading)
        for one in findings:
            table.add_row(_mark(one), one.name, one.what, one.detail)
        PlainConsole(WIDTH).print(table)
    raise SystemExit(int(any(not one.works or one.needed > one.found for one in findings)))


def findings_of() -> list[Finding]:
    """Look for all dependencies, without importing or running any."""
    known = packages_distributions()  # reads every package's list of files
    extras = [_extra(extra, known) for extra in EXTRAS]
    return [_python(), _compiler(), _decoder(), *extras, *map(_tool, TOOLS)]


def _tried(finding: Finding) -> Finding:
    """Train one layer of an installed framework; other findings stay unchanged."""
    if finding.name not in LAYERS or not finding.found:
        return finding
    click.echo(f"training one layer of {finding.name} ...", err=True)
    start = time.monotonic()
    fault = _trial_fault(finding.name)
    if fault:
        return replace(finding, works=False, detail=f"{finding.detail}; {fault}")
    seconds = time.monotonic() - start
    return replace(finding, detail=f"{finding.detail}; one layer trained in {seconds:.0f} s")


def _trial_fault(framework: str) -> str | None:
    """Return the last line of a framework's failed trial; None if it trained."""
    command = [sys.executable, "-m", "pockengine.cli.one_layer", framework]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "2"}
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TRIAL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"one layer did not train within {TRIAL_SECONDS} s"
    if ran.returncode == 0:
        return None
    lines = ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"]
    return f"one layer does not train: {lines[-1]}"


def _mark(finding: Finding) -> str:
    if not finding.works:
        return "FAILS"
    return "ok" if finding.found else "MISSING" if finding.needed else "-"


def _python() -> Finding:
    found = f"Python {sys.version.split()[0]}, pockengine {__version__}"
    return Finding("python", "everything", sys.version_info >= OLDEST, found, needed=True)


def _compiler() -> Finding:
    """Look for zig, which builds for all devices, else for a compiler for this machine."""
    release, own = _version("ziglang"), which("gcc") or which("clang")
    detail = "pip install ziglang"
    if release is not None:
        detail = f"zig {release}"
    elif own is not None:
        detail = f"{own}, for this machine alone; for boards: {detail}"
    found = (release or own) is not None
    return Finding("C compiler", "building programs", found, detail, needed=True)


def _decoder() -> Finding:
    header = find_decoder()
    what = "pictures on boards"
    return Finding("stb_image.h", what, header is not None, str(header or INSTALL))


def _extra(extra: str, known: Mapping[str, list[str]]) -> Finding:
    """Look for an extra's packages; `known` maps modules to installed packages."""
    lacking = missing(extra)
    names = [known.get(module, [module])[0] for module in EXTRAS[extra]]
    versions = [f"{name} {_version(name) or ''}".rstrip() for name in names]
    detail = f"{pip_command(extra)}  (no {', '.join(lacking)})" if lacking else ", ".join(versions)
    return Finding(extra, TASKS[extra], not lacking, detail)


def _tool(tool: Tool) -> Finding:
    place = which(tool.program)
    return Finding(tool.program, tool.what, place is not None, place or tool.command)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
