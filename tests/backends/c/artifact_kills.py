"""Kill writers of one artifact at random moments: readers always find a complete artifact.

python -m pockengine.tests.backends.c.artifact_kills --kills 1000
"""

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pockengine.backends.artifact import load_artifact, write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.compiler.program import Program
from pockengine.files import write_whole
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.programs import compile_for, point_graph

SIZES = (3, 50_000)
WRITERS = 4


@dataclass(frozen=True)
class Count:
    """Killed writers, artifacts that were read, and folders left behind by killed writers."""

    killed: int
    read: int
    left: int


def compiled() -> list[tuple[Program, CBackend]]:
    """Return programs that differ in a size, so that a mixture of their files does not load."""
    return [compile_for(point_graph(size), device_of("avx2")) for size in SIZES]


def write(programs: list[tuple[Program, CBackend]], folder: Path, times: int) -> None:
    """Write the programs in sequence to one folder."""
    for turn in range(times):
        write_artifact(*programs[turn % len(programs)], folder, build_code=False)


def kill_writers(folder: Path, kills: int, seed: int = 0) -> Count:
    """Kill a writer at random moments, repeatedly, and read the artifact."""
    programs = compiled()
    write(programs, folder, 1)
    start = time.perf_counter()
    write(programs, folder, 2)
    longest = time.perf_counter() - start
    rng, killed, left = random.Random(seed), 0, 0
    for _ in range(kills):
        child = _forked(lambda: write(programs, folder, 1000))
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        load_artifact(folder)
        left = max(left, len(list(folder.parent.iterdir())) - 1)
    write(programs, folder, 1)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return Count(killed, kills, left)


def kill_savers(path: Path, kills: int, seed: int = 0) -> Count:
    """Kill a file's writer at a random moment, and check that the file is one of two versions."""
    texts = [bytes([letter]) * 300_000 for letter in b"ab"]

    def save(times: int) -> None:
        for turn in range(times):
            write_whole(path, partial(Path.write_bytes, data=texts[turn % 2]))

    save(2)
    rng, killed, left = random.Random(seed), 0, 0
    for _ in range(kills):
        child = _forked(lambda: save(10_000))
        time.sleep(rng.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert path.read_bytes() in texts
        left = max(left, len(list(path.parent.iterdir())) - 1)
    save(1)
    assert [name.name for name in path.parent.iterdir()] == [path.name]
    return Count(killed, kills, left)


def _forked(work) -> int:  # type: ignore[no-untyped-def]
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def write_at_once(folder: Path, times: int) -> int:
    """Replace one artifact from four processes at the same time; return the number of reads."""
    programs = compiled()
    write(programs, folder, 1)
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=write, args=(programs, folder, times)) for _ in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        load_artifact(folder)
        reads += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return reads


def main() -> None:
    """Run the kills and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    kills = parser.parse_args().kills
    for kind, kill in (("artifact", kill_writers), ("file", kill_savers)):
        with tempfile.TemporaryDirectory() as place:
            print(kind, kill(Path(place) / "target", kills))
    with tempfile.TemporaryDirectory() as place:
        reads = write_at_once(Path(place) / "target", kills // WRITERS)
        print(f"{WRITERS} writers at once: {kills // WRITERS * WRITERS} writes, {reads} reads")


if __name__ == "__main__":
    main()
