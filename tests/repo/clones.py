"""Build the same targets in two clones, in differently named folders and with empty caches.

Outputs are equal byte for byte, so clones can share a remote cache.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import click

TARGETS = (
    *("//backends/c/...", "//backends/native/..."),
    *("//tests/compiler/...", "//tests/devices/..."),
)
"""C for every device, generated files, and Python programs with their wheels."""
PLACES = ("a/pockengine", "another/place/clone")
OF_A_MACHINE = (".runfiles", ".runfiles_manifest")
"""Suffixes of machine-specific outputs of Bazel: lists of absolute paths."""


@click.command()
@click.option("--target", "targets", multiple=True, default=TARGETS, show_default=True)
def main(targets: tuple[str, ...]) -> None:
    """Print how many outputs of two clones are equal; exit with 1 if one differs."""
    source = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (_build(source, Path(scratch, place), targets) for place in PLACES)
    for name in sorted(first.keys() ^ second.keys()):
        click.echo(f"{name}: built in one clone only")
    differing = [name for name in first.keys() & second.keys() if first[name] != second[name]]
    for name in sorted(differing):
        click.echo(f"{name}: differs")
    click.echo(f"{len(first.keys() & second.keys()) - len(differing)} files are equal")
    raise SystemExit(bool(differing) or first.keys() != second.keys())


def _build(source: Path, place: Path, targets: tuple[str, ...]) -> dict[str, str]:
    """Clone and build with empty caches; return the outputs' hashes by path."""
    subprocess.run(["git", "clone", "--quiet", str(source), str(place)], check=True)
    with tempfile.TemporaryDirectory() as bazel, tempfile.TemporaryDirectory() as cache:
        bazelw = ("./bazelw", f"--output_user_root={bazel}")
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        subprocess.run([*bazelw, "build", *targets], cwd=place, env=environment, check=True)
        try:
            return _hashes((place / "bazel-bin").resolve())
        finally:
            subprocess.run([*bazelw, "shutdown"], cwd=place, env=environment, check=True)


def _hashes(folder: Path) -> dict[str, str]:
    found = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith(OF_A_MACHINE)]
        for path in (Path(parent, name) for name in names if not name.endswith(OF_A_MACHINE)):
            content = path.read_bytes() if path.exists() else b"nothing"
            found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


if __name__ == "__main__":
    main()
