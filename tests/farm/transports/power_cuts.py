"""Cut the power of a training board at random moments: no checkpoint may be lost or torn.

bazel run //tests/farm/transports:power_cuts -- --count 200
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.artifact import write_artifact
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.devices.schema import load_device
from pockengine.errors import FarmError
from pockengine.farm.boards.board import BUILT_IN, Emulated, board_for, load_boards
from pockengine.farm.boards.connect import guest_of
from pockengine.farm.images.image import ensure_image
from pockengine.farm.transports.emulated import BOOT_TIMEOUT_S, Emulation
from pockengine.farm.transports.powered import PoweredTransport
from pockengine.tests.backends.c.programs import compile_for
from pockengine.tests.backends.c.resuming import dropout_graph

DRIVE_MB = 48
EVERY = 3
LONGEST_S = 3.0
NEVER = 10**9
CONSOLE = "/dev/ttyAMA0"


@dataclass
class PowerCuts:
    """Counts of power cuts and their effects.

    `lost`: boots that resumed before the last checkpoint reported as saved.
    `torn`: files that `--resume` skipped.
    `different`: losses that differ from those of an undisturbed training.
    """

    cuts: int = 0
    saved: int = 0
    lost: int = 0
    torn: int = 0
    different: int = 0
    losses: dict[int, float] = field(default_factory=dict, repr=False)


def cut_power(
    folder: Path, count: int, seed: int, report: Callable[[PowerCuts], None] = lambda _: None
) -> PowerCuts:
    """Train on a board, cut its power `count` times, and compare with an undisturbed training."""
    board = board_for("rpi4", load_boards([BUILT_IN]))
    assert isinstance(board.place, Emulated)
    guest = replace(guest_of(board, board.place), cores=1, drive=_drive(folder))
    rng, outcome = np.random.default_rng(seed), PowerCuts()
    supply = Emulation(board.name, guest, ensure_image(), BOOT_TIMEOUT_S)
    with closing(supply):
        supply.power("on")
        with closing(PoweredTransport(supply)) as transport:
            for name, path in _files(folder).items():
                transport.put(path, f"{transport.workdir}/{name}")
            transport.run(["sync"])
            after = 0
            while outcome.cuts < count:
                delay = float(rng.uniform(0, LONGEST_S))
                assert supply.machine is not None
                console = supply.machine.console
                after = _train_until_cut(transport, console, delay, outcome, after)
                report(outcome)
            outcome.different += _differences(transport, outcome.losses)
    return outcome


def _train_until_cut(
    transport: PoweredTransport, console: Path, delay: float, outcome: PowerCuts, after: int
) -> int:
    """Start the training, cut the power and boot; return the last saved step."""
    command = " ".join([*_command(transport.workdir, NEVER), "--save", "checkpoints/", "--resume"])
    script = f"cd {transport.workdir} && ({command} --save-every {EVERY} > {CONSOLE} 2>&1 &)"
    transport.run(["sh", "-c", script])
    time.sleep(delay)
    transport.power("cycle")
    outcome.cuts += 1
    resumed, saved = 0, after
    for line in _lines(console.read_text(errors="replace")):
        resumed = max(resumed, int(line["after"])) if "resumed" in line else resumed
        outcome.lost += "resumed" in line and int(line["after"]) < after
        outcome.lost += "step" in line and not resumed and after > 0
        outcome.torn += "unsound" in line
        if "step" in line:
            step, loss = int(line["step"]), float(line["loss"])
            outcome.different += outcome.losses.setdefault(step, loss) != loss
        if "saved" in line:
            saved = int(line["after"])
            outcome.saved += 1
    return saved


def _differences(transport: PoweredTransport, losses: dict[int, float]) -> int:
    """Train undisturbed up to the last step reached; count the losses that differ."""
    result = transport.run(
        _command(transport.workdir, max(losses)), cwd=transport.workdir, timeout_s=600
    )
    if not result.ok:
        raise FarmError(f"the undisturbed training: {result.describe()}")
    expected = {
        int(line["step"]): float(line["loss"])
        for line in _lines(result.stdout.decode())
        if "step" in line
    }
    return sum(expected[step] != loss for step, loss in losses.items())


def _command(workdir: str, steps: int) -> list[str]:
    files = ["--weights", "weights.safetensors", "--data", "data.safetensors"]
    return [f"{workdir}/run", "train", *files, "--steps", str(steps), "--lr", "0.001"]


def _lines(text: str) -> Iterator[dict[str, Any]]:
    """Read the complete JSON lines; a power cut may truncate the last one."""
    for line in text.splitlines():
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)


def _drive(folder: Path) -> Path:
    path = folder / "drive"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(DRIVE_MB << 20)
    subprocess.run(["/sbin/mkfs.ext4", "-q", str(path)], check=True)
    return path


def _files(folder: Path) -> dict[str, Path]:
    """Compile a net with dropout for the board, and draw its data."""
    program, backend = compile_for(dropout_graph(), load_device("rpi4"), Training(optimizer=Adam()))
    artifact = write_artifact(program, backend, folder / "artifact")
    rng = np.random.default_rng(0)
    data = folder / "data.safetensors"
    rows = {"x": rng.standard_normal((28, 8)).astype(np.float32)}
    save_file({**rows, "labels": rng.integers(0, 3, 28)}, data)
    return {
        "run": artifact.executable,
        "weights.safetensors": artifact.folder / "weights.safetensors",
        "data.safetensors": data,
    }


@click.command()
@click.option("--count", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Cut the power of a training board, and print the effects."""
    with tempfile.TemporaryDirectory() as folder:
        click.echo(cut_power(Path(folder), count, seed, lambda cuts: click.echo(cuts, err=True)))


if __name__ == "__main__":
    main()
