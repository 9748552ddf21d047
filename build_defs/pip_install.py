"""Install a locked set of wheels and lay it out as one Bazel package per distribution.

Run by the repository rule `pip_lock` in the folder of the new repository, with nothing but the
standard library and pip. Each distribution becomes one source directory
(DISTRIBUTION/site-packages), because Bazel handles a directory as one input where thousands of
files would cost seconds per test. Modules are compiled here: the sandbox is read-only.
"""

import argparse
import compileall
import importlib.metadata
import os
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

BUILD = """\
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

py_library(
    name = "{name}",
    data = ["site-packages"],
    imports = ["site-packages"],
    deps = [{deps}],
)

filegroup(
    name = "files",
    srcs = ["site-packages"],
)
"""


def label_name(distribution: str) -> str:
    """Return the distribution's name as it stands in labels: PyNaCl -> pynacl."""
    return re.sub(r"[-_.]+", "_", distribution).lower()


def read_lock(path: Path) -> dict[str, tuple[str, str]]:
    """Return name -> (version, whole entry with its hashes) of a pip-compile lock file."""
    entries = re.findall(
        r"^(\S+?)==(\S+?)((?: \\\n    --hash=\S+)*)$", path.read_text(), re.MULTILINE
    )
    return {
        label_name(name): (version, f"{name}=={version}{hashes}")
        for name, version, hashes in entries
    }


def own_entries(
    lock: dict[str, tuple[str, str]], base: dict[str, tuple[str, str]]
) -> dict[str, str]:
    """Return the entries that are not in `base`; raise SystemExit if the two conflict."""
    differing = [name for name in lock if name in base and lock[name][0] != base[name][0]]
    if differing:
        sys.exit(f"not the version of the base lock: {', '.join(differing)}; run relock.sh")
    return {name: entry for name, (_, entry) in lock.items() if name not in base}


def pip_install(arguments: list[str], target: Path) -> int:
    """Install wheels into `target`, dependencies excluded; return pip's exit status."""
    command = [sys.executable, "-I", "-m", "pip", "install", "--no-input", "--no-deps"]
    command += ["--no-compile", "--only-binary=:all:", "--ignore-installed"]
    command += ["--no-warn-script-location", "--disable-pip-version-check", "--quiet"]
    command += ["--target", str(target)]
    return subprocess.run([*command, *arguments], check=False, stdout=sys.stderr).returncode


def install_unhashed(requirement: str, fallback_index: str | None, target: Path) -> None:
    """Install one exact requirement from pip's configured index, else from the fallback."""
    if pip_install([requirement], target) == 0:
        return
    if fallback_index is None or pip_install(
        ["--extra-index-url", fallback_index, requirement], target
    ):
        sys.exit(f"{requirement} was not found")


def move_files(distribution: importlib.metadata.Distribution, source: Path, root: Path) -> None:
    """Move the files in the distribution's RECORD from the common folder to its own."""
    for file in distribution.files or []:
        # RECORD lists programs at their place in an environment; here they are in bin/.
        parts = file.parts[2:] if file.parts[:3] == ("..", "..", "bin") else file.parts
        path = source.joinpath(*parts)
        if ".." in parts or not path.is_file():
            continue
        moved = root.joinpath(*parts)
        moved.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, moved)


def dependencies(
    distribution: importlib.metadata.Distribution, own: set[str], base: set[str], base_name: str
) -> list[str]:
    """Return the labels of the distribution's requirements on this machine."""
    labels = set()
    for text in distribution.requires or []:
        requirement = Requirement(text)
        name = label_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name in own and name != label_name(distribution.metadata["Name"]):
            labels.add(f'"//{name}"')
        elif name in base:
            labels.add(f'"@{base_name}//{name}"')
    return sorted(labels)


def split(source: Path, base: set[str], base_name: str) -> None:
    """Turn the common folder `source` into one package per distribution."""
    found = {
        label_name(distribution.metadata["Name"]): distribution
        for distribution in importlib.metadata.distributions(path=[str(source)])
    }
    # Metadata is read lazily, so all of it is needed before files move.
    deps = {
        name: dependencies(distribution, set(found), base, base_name)
        for name, distribution in found.items()
    }
    for name, distribution in sorted(found.items()):
        root = Path(name, "site-packages").resolve()
        move_files(distribution, source, root)
        root.mkdir(parents=True, exist_ok=True)
        compileall.compile_dir(
            str(root),
            quiet=2,
            stripdir=str(Path.cwd()),  # the same bytes in each clone, so that it shares results
            workers=os.cpu_count() or 1,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        Path(name, "BUILD").write_text(BUILD.format(name=name, deps=", ".join(deps[name])))


def main() -> None:
    """Install and split."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--base", default="")
    parser.add_argument("--base-lock", type=Path)
    parser.add_argument("--unhashed", action="append", default=[])
    parser.add_argument("--fallback-index")
    arguments = parser.parse_args()

    base = read_lock(arguments.base_lock) if arguments.base_lock else {}
    entries = own_entries(read_lock(arguments.lock), base)
    common = Path("all").resolve()
    Path("requirements.txt").write_text("\n".join(entries.values()) + "\n")
    if status := pip_install(["--require-hashes", "-r", "requirements.txt"], common):
        sys.exit(status)
    for requirement in arguments.unhashed:
        install_unhashed(requirement, arguments.fallback_index, common)
    split(common, set(base), arguments.base)
    shutil.rmtree(common)


if __name__ == "__main__":
    main()
