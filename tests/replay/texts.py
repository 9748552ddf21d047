"""The text of an artifact, and its stored hashes.

Weights are included only by names, types and order, because their last bits may depend on the
machine. The manifest's version and file hashes are left out.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

from pockengine.backends.artifact import write_artifact
from pockengine.tests.replay.cases import Case

HASHES = Path(__file__).resolve().parent / "hashes.txt"
LETTERS = 16
"""Characters of each stored hash."""

ENVIRONMENT = ("pockengine", "files")
"""Keys of the manifest that record the environment of the build."""

Hashes = Mapping[tuple[str, str], str]
"""By case and file."""


def texts(case: Case, folder: Path) -> dict[str, str]:
    """Compile a case into an artifact in `folder`; return its generated files by name."""
    backend = case.backend()
    program = case.compile(backend.target())
    write_artifact(program, backend, folder, build_code=False)
    found = {path.name: path.read_text() for path in sorted((folder / "code").glob("*.[ch]"))}
    manifest = json.loads((folder / "manifest.json").read_text())
    recorded = {key: value for key, value in manifest.items() if key not in ENVIRONMENT}
    found["manifest.json"] = json.dumps(recorded, indent=1) + "\n"
    found["weights.json"] = _weights_header(folder / "weights.safetensors")
    return found


def _weights_header(path: Path) -> str:
    """Return the header of a safetensors file: names, types and offsets."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.dumps(json.loads(file.read(length)), indent=1) + "\n"


def hash_text(text: str) -> str:
    """Return the first hex digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:LETTERS]


def read_hashes() -> dict[tuple[str, str], str]:
    """Read the stored hashes."""
    rows = (line.split() for line in HASHES.read_text().splitlines())
    return {(case, file): digest for case, file, digest in rows}


def write_hashes(hashes: Hashes) -> None:
    """Write a line per file: case, file, hash."""
    lines = (f"{case} {file} {digest}\n" for (case, file), digest in hashes.items())
    HASHES.write_text("".join(lines))
