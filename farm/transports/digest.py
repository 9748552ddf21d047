"""The hash that identifies files on both sides of a connection."""

import hashlib
import re
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# GNU sha256sum puts a backslash before the hash of a file whose name it had to escape.
PRINTED = re.compile(rb"\\?([0-9a-f]{64})[ \t]")


def printed_sha256(output: bytes) -> str | None:
    """Return the hash that sha256sum printed; None when a board printed anything else."""
    line = PRINTED.match(output)
    return line[1].decode("ascii") if line else None
