"""Damage the files of readers in turn, and collect unexpected outcomes."""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import InternalError, PockEngineError
from pockengine.tests.fuzz.mutate import mutate


@dataclass(frozen=True)
class Reader:
    """A valid file, and the function that reads it."""

    path: Path
    read: Callable[[], object]


@dataclass(frozen=True)
class Finding:
    """A file for which a reader had an unexpected outcome."""

    reader: str
    error: BaseException
    data: bytes


Readers = Callable[[Path], Mapping[str, Reader]]
"""Write a valid file for each reader into an empty folder."""


def fuzz(
    readers: Readers, executions: int, seed: int, place: Path
) -> tuple[dict[str, int], list[Finding]]:
    """Damage the readers' files in turn; return the executions per reader and the findings."""
    rng, findings = random.Random(seed), []
    known = readers(place)
    sound = {name: reader.path.read_bytes() for name, reader in known.items()}
    counts = dict.fromkeys(known, 0)
    for name in known:
        known[name].read()
    for turn in range(executions):
        name = list(known)[turn % len(known)]
        reader, data = known[name], mutate(sound[name], rng)
        reader.path.write_bytes(data)
        counts[name] += 1
        try:
            reader.read()
        except InternalError as error:  # an internal error is a bug in PockEngine
            findings.append(Finding(name, error, data))
        except PockEngineError as error:
            json.dumps(str(error))  # the message must be printable
        except Exception as error:
            findings.append(Finding(name, error, data))
        reader.path.write_bytes(sound[name])
    return counts, findings


def command(readers: Readers, description: str | None) -> None:
    """Fuzz from the command line, and print the executions and findings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        counts, findings = fuzz(readers, options.executions, options.seed, Path(place))
    for name, count in counts.items():
        print(f"{name}: {count}")
    print(f"{len(findings)} findings in {time.perf_counter() - start:.0f} s")
    for finding in findings[:20]:
        print(f"{finding.reader}: {finding.error!r}: {finding.data[:300]!r}")
    raise SystemExit(bool(findings))
