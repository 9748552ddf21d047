"""Fill a training's disk at random moments, or make it read-only: no saved data is lost.

python -m pockengine.tests.backends.c.disk_trainings --count 300, as a user who may mount.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from safetensors.numpy import save_file

from pockengine.tests.backends.c.kill_trainings import OPTIMIZED, command_of, newest
from pockengine.tests.backends.c.programs import build_sanitized, point_graph
from pockengine.tests.backends.c.runner import Runner, as_rows, initial

DISK_BYTES = 256 * 1024
STEPS = 2000


@dataclass(frozen=True)
class DiskFailures:
    """Results of trainings whose disk failed.

    `refused` counts failures that the runner reported, `lost` checkpoints that were reported as
    saved but are missing, `different` trainings with another result than the undisturbed one.
    """

    trainings: int
    refused: int
    lost: int
    different: int


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Use up all free space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    yield
    filler.unlink()


@contextlib.contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Remount the disk read-only once no file on it is open for writing."""
    remount = ["mount", "-o", "remount,ro", str(disk)]
    while subprocess.run(remount, capture_output=True, check=False).returncode != 0:
        time.sleep(0.001)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


FAULTS: dict[str, Callable[[Path], contextlib.AbstractContextManager[None]]] = {
    "full": full,
    "read-only": read_only,
}


def disturb(runner: Runner, disk: Path, count: int, fault: str, seed: int) -> DiskFailures:
    """Train `count` times; each time the disk fails at a random moment and is then repaired."""
    expected = subprocess.run(
        command_of(runner, f"{disk}/whole/", STEPS), capture_output=True, check=True
    )
    assert expected.stdout
    final = max((disk / "whole").iterdir()).read_bytes()
    rng = np.random.default_rng(seed)
    refused = lost = different = 0
    for number in range(count):
        place = disk / f"run-{number}"
        command = command_of(runner, f"{place}/", STEPS)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(float(rng.uniform(0, 0.15)))
            with FAULTS[fault](disk):
                out, err = process.communicate()
                refused += process.returncode == 1 and b"cannot" in err
                assert process.returncode in (0, 1), err
                lost += newest(place) < _reported(out)
        subprocess.run(command, capture_output=True, check=True)
        different += max(place.iterdir()).read_bytes() != final
        for path in place.iterdir():
            path.unlink()
    return DiskFailures(count, refused, lost, different)


def _reported(out: bytes) -> int:
    """Return the last step that a run reported as saved."""
    saved = [line for line in out.splitlines() if line.startswith(b'{"saved"')]
    return int(saved[-1].split(b'"after": ')[1].split(b",")[0]) if saved else 0


@click.command()
@click.option("--count", default=300, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Disturb trainings by each fault, and print the losses."""
    with tempfile.TemporaryDirectory() as place:
        folder, disk = Path(place), Path(place) / "disk"
        path, program = build_sanitized(point_graph(), folder, OPTIMIZED)
        weights, data = folder / "weights.safetensors", folder / "data.safetensors"
        save_file({**initial(program), **program.constants}, weights)
        batches = np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32)
        save_file(as_rows({"x": batches}), data)
        disk.mkdir()
        for fault in FAULTS:
            size = f"size={DISK_BYTES}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(disk)], check=True)
            try:
                runner = Runner(path, program, weights, data)
                click.echo(f"{fault}: {disturb(runner, disk, count, fault, seed)}")
            finally:
                os.chdir("/")
                subprocess.run(["umount", str(disk)], check=True)


if __name__ == "__main__":
    main()
