"""`pockengine doctor`: what is installed here, what is missing, and the command that brings it."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from shutil import which

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.c.decoder import INSTALL, find_decoder
from pockengine.cli.options import json_option, print_json
from pockengine.extras import EXTRAS, TASKS, missing, pip_command
from pockengine.terminal import PlainConsole

WIDTH = 200
OLDEST = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One thing that a task needs; `needed` where nothing can be built without it."""

    name: str
    what: str
    found: bool
    detail: str
    needed: bool = False


@dataclass(frozen=True)
class Tool:
    """A program that is looked for, and the command that brings it."""

    program: str
    what: str
    command: str


TOOLS = (
    Tool("ssh", "logging in to boards by hand", "apt-get install openssh-client"),
    Tool("qemu-system-aarch64", "emulated boards", "apt-get install qemu-system-arm"),
    Tool("qemu-aarch64", "counting instructions", "apt-get install qemu-user"),
    Tool("qemu-hexagon", "the emulated Snapdragon DSP", "apt-get install qemu-user"),
    Tool("git", "commits in records, compare, history", "apt-get install git"),
)


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what is installed, what is missing, and the command that brings it.

    The exit status is 1 where nothing can be built: no C compiler, or a Python that is too old.
    """
    findings = findings_of()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table(box=SIMPLE)
        for heading in ("", "", "for", "found, or how to get it"):
            table.add_column(heading)
        for one in findings:
            table.add_row(_mark(one), one.name, one.what, one.detail)
        PlainConsole(WIDTH).print(table)
    raise SystemExit(int(any(one.needed and not one.found for one in findings)))


def findings_of() -> list[Finding]:
    """Look for everything; nothing is imported or run."""
    known = packages_distributions()  # reads the list of files of every package
    extras = [_extra(extra, known) for extra in EXTRAS]
    return [_python(), _compiler(), _decoder(), *extras, *map(_tool, TOOLS)]


def _mark(finding: Finding) -> str:
    return "ok" if finding.found else "MISSING" if finding.needed else "-"


def _python() -> Finding:
    ours = _version("pockengine") or "as it lies here"
    found = f"Python {sys.version.split()[0]}, pockengine {ours}"
    return Finding("python", "everything", sys.version_info >= OLDEST, found, needed=True)


def _compiler() -> Finding:
    """Look for zig, which builds for every device, then for what builds for this machine."""
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
    """Look for an extra's packages; `known` are all packages here, by their modules."""
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
