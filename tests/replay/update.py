"""Rewrite hashes.txt with the compiler's current output.

`python -m pockengine.tests.replay.update`, or `bazel run //tests/replay:update`.
"""

import argparse
import tempfile
from pathlib import Path

from pockengine.tests.replay.cases import cases
from pockengine.tests.replay.texts import hash_text, read_hashes, texts, write_hashes


def main() -> None:
    """Generate every case and print the changed files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="also write every text there, to compare with another commit's",
    )
    folder = parser.parse_args().folder
    known = read_hashes()
    hashes = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases():
            for file, text in texts(case, Path(scratch) / case.name).items():
                hashes[case.name, file] = hash_text(text)
                if folder is not None:
                    (folder / case.name).mkdir(parents=True, exist_ok=True)
                    (folder / case.name / file).write_text(text)
    write_hashes(hashes)
    for key in known.keys() | hashes.keys():
        if known.get(key) != hashes.get(key):
            print(" ".join(key), known.get(key, "new"), "->", hashes.get(key, "gone"))


if __name__ == "__main__":
    main()
