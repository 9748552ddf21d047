"""Rewrite hashes.txt from what the compiler generates now.

`python -m pockengine.tests.replay.update`, or `bazel run //tests/replay:update`. Given a
folder, it also writes every text there, to be compared with those of another commit.
"""

import sys
import tempfile
from pathlib import Path

from pockengine.tests.replay.cases import cases
from pockengine.tests.replay.texts import hash_text, read_hashes, texts, write_hashes


def main() -> None:
    """Generate every case and say which files changed."""
    keep = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    known = read_hashes()
    hashes = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases():
            for file, text in texts(case, Path(scratch) / case.name).items():
                hashes[case.name, file] = hash_text(text)
                if keep is not None:
                    (keep / case.name).mkdir(parents=True, exist_ok=True)
                    (keep / case.name / file).write_text(text)
    write_hashes(hashes)
    for key in known.keys() | hashes.keys():
        if known.get(key) != hashes.get(key):
            print(" ".join(key), known.get(key, "new"), "->", hashes.get(key, "gone"))


if __name__ == "__main__":
    main()
