"""Fetch Debian's arm64 packages with a separate apt configuration.

The machine's package state is neither read nor written, and no foreign architecture is added. On
Debian the machine's own sources are used, including a local mirror; elsewhere deb.debian.org with
Debian's archive key. apt checks the signature of the index and the hash of each package.
"""

import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pockengine.errors import FarmError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian bookworm main\n"


def download(folder: Path, names: list[str], metapackage: str) -> list[Path]:
    """Fetch packages, and the kernel behind a metapackage, into `folder`/debs.

    FarmError with the end of apt's output if apt is missing, offline, or finds a bad signature.
    """
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise FarmError(f"{tool} is missing: an emulated board's image needs Debian or Ubuntu")
    options = _private_apt(folder)
    # A failing source (such as a vendor's without arm64) is not an error: only fetching and
    # verifying the packages must succeed.
    update = subprocess.run(["apt-get", "-q", *options, "update"], capture_output=True, text=True)
    kernel = kernel_packages(metapackage, lambda package: _depends(package, options))
    debs = folder / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir(parents=True)
    argv = ["apt-get", "-q", *options, "download", *names, *kernel]
    result = subprocess.run(argv, cwd=debs, capture_output=True, text=True)
    archives = sorted(debs.glob("*.deb"))
    if result.returncode != 0 or not kernel or len(archives) != len(names) + len(kernel):
        words = (update.stderr + result.stderr).strip()[-800:]
        raise FarmError(
            f"apt cannot fetch the packages of the emulated board ({', '.join(names)}, "
            f"{metapackage}); check the network and apt's sources. apt said:\n{words}"
        )
    return archives


def members(deb: Path) -> Iterator[tuple[str, tarfile.TarInfo, bytes]]:
    """Yield each file of a package: its path without "./", its tar entry, its bytes."""
    command = ["dpkg-deb", "--fsys-tarfile", str(deb)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # stdout=PIPE above
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for entry in archive:
                stream = archive.extractfile(entry) if entry.isreg() else None
                yield entry.name.removeprefix("./"), entry, stream.read() if stream else b""


def _private_apt(folder: Path) -> list[str]:
    """Return apt options that keep all state in `folder`."""
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",  # do not drop privileges: the folders are ours
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::Languages": "none",
        "Dir::State": str(folder),
        "Dir::State::Lists": str(folder / "lists"),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder / "cache"),
    }
    if not _is_debian():
        if not KEYRING.is_file():
            raise FarmError(f"{KEYRING} is missing; apt-get install debian-archive-keyring")
        sources = folder / "sources.list"
        sources.write_text(SOURCE)
        settings |= {"Dir::Etc::sourcelist": str(sources), "Dir::Etc::sourceparts": "-"}
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _is_debian() -> bool:
    release = Path("/etc/os-release")
    return release.is_file() and "ID=debian" in release.read_text().splitlines()


def kernel_packages(metapackage: str, depends: Callable[[str], list[str]]) -> list[str]:
    """Return the packages of the current kernel, which a metapackage depends on.

    Up to Debian 13 that is one image; later images are empty and depend on their parts.
    """
    image = [name for name in depends(metapackage) if name.startswith("linux-image-")][:1]
    parts = ("linux-binary-", "linux-modules-")
    return image + [name for of in image for name in depends(of) if name.startswith(parts)]


def _depends(package: str, options: list[str]) -> list[str]:
    argv = ["apt-cache", *options, "depends", package]
    listing = subprocess.run(argv, capture_output=True, text=True).stdout
    return [line.split()[-1] for line in listing.splitlines() if "Depends:" in line]
