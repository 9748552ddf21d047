"""Teach a microcontroller to recognize a person: its predictions before and after.

MCUNet knows the thousand classes of ImageNet, in int8. With a new head it learns person or not from
pictures of both, on an emulated STM32F746 (320 KB of SRAM, 1 MB of flash), with the scheme that
tiny-training published for 49 KB: 21 biases, parts of three weights, the head. Training and
evaluation run entirely on the board, one picture at a time.

    python -m pockengine.examples.person mcunet-5fps.npz person.bmp no_person.bmp cat.bmp

Views are random crops of the pictures, some mirrored, in grayscale. Evaluation uses new views, but
of the same pictures: the example shows that the board learns, not that it recognizes people it has
never seen.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image, ImageOps
from rich.console import Console
from rich.table import Table
from torch import nn

from pockengine.api import compile
from pockengine.compiled import Compiled
from pockengine.compiler.ir import Graph
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sparse import Scheme
from pockengine.errors import FinetuneError, PockEngineError
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.firmware.run import FirmwareRun, Steps, train_firmware
from pockengine.farm.progress import step
from pockengine.farm.transports.transport import Transport
from pockengine.frontends.torch.model import from_torch
from pockengine.models.pretrained import load_int8
from pockengine.models.tiny_training import convert, published

SIZE, SMALLEST = 128, 0.75
"""Pixels of a view's side, and the smallest share of a picture's side in a view."""

NET, BUDGET_KB, RATE, JUDGED = "mcunet-5fps", 49, 0.01, 20
LOGITS = "output"


@dataclass(frozen=True)
class Views:
    """Pictures [N, 3, 128, 128] f32 from -1 to 1, and labels [N] i64: 1 is a person."""

    pictures: np.ndarray
    labels: np.ndarray

    def batches(self, compiled: Compiled) -> list[dict[str, np.ndarray]]:
        """Return the inputs of each step, with quantized pictures."""
        rows = zip(self.pictures, self.labels, strict=True)
        return [compiled.integers({"x": x[None], "target": y[None]}) for x, y in rows]


@dataclass(frozen=True)
class Lesson:
    """The board's predictions for the whole pictures and for new views, before and after."""

    run: FirmwareRun
    pictures: int
    expected: np.ndarray

    def people(self, after: bool) -> np.ndarray:
        """Return the probability of a person in each whole picture, from 0 to 1."""
        return _sure(self.run, after)[: self.pictures]

    def accuracy(self, after: bool) -> float:
        """Return the accuracy on the new views."""
        guessed = _sure(self.run, after)[self.pictures :] > 0.5
        return float((guessed == self.expected[self.pictures :]).mean())


def _sure(run: FirmwareRun, after: bool) -> np.ndarray:
    rows = np.concatenate([row[LOGITS] for row in (run.after if after else run.before)])
    return np.asarray(1 / (1 + np.exp(rows[:, 0].astype(np.float64) - rows[:, 1])))


def read_pictures(paths: Sequence[Path]) -> list[Image.Image]:
    """Read pictures as grayscale; FinetuneError for an unreadable file."""
    pictures = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                pictures.append(picture.convert("L").convert("RGB"))
        except OSError as error:
            raise FinetuneError(f"{path} is no picture that can be read: {error}") from error
    return pictures


def draw_views(pictures: Sequence[Image.Image], count: int, seed: int) -> Views:
    """Draw views: every other one is of the first picture, which shows a person."""
    random = np.random.default_rng(seed)
    chosen = [0 if row % 2 == 0 else 1 + row // 2 % (len(pictures) - 1) for row in range(count)]
    rows = [_view(pictures[place], random) for place in chosen]
    return Views(np.stack(rows), np.array([int(place == 0) for place in chosen]))


def whole(pictures: Sequence[Image.Image]) -> Views:
    """Return the middle of each picture."""
    rows = [_pixels(ImageOps.fit(picture, (SIZE, SIZE))) for picture in pictures]
    return Views(np.stack(rows), np.array([int(place == 0) for place in range(len(pictures))]))


def _view(picture: Image.Image, random: np.random.Generator) -> np.ndarray:
    side = int(min(picture.size) * random.uniform(SMALLEST, 1))
    left, top = (int(random.integers(0, length - side + 1)) for length in picture.size)
    part = picture.crop((left, top, left + side, top + side)).resize((SIZE, SIZE))
    return _pixels(ImageOps.mirror(part) if random.integers(2) else part)


def _pixels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture, np.float32).transpose(2, 0, 1) / 127.5 - 1


def compile_for(device: str, weights: Path, samples: Views, folder: Path) -> Compiled:
    """Compile a step in int8, calibrated on the samples, for the net with a new head."""
    torch.manual_seed(0)
    net = load_int8(weights)
    net.classifier = nn.Linear(net.classifier.in_features, 2)
    graph = from_torch(net, (torch.zeros(1, 3, SIZE, SIZE),), loss="cross_entropy")
    int8 = Int8({"x": samples.pictures}, inputs=("x",))
    return compile(
        graph, None, scheme=scheme_for(graph), device=device, quantize=int8, folder=folder
    )


def scheme_for(graph: Graph) -> Scheme:
    """Return the published scheme, with this graph's names."""
    scheme = next(one for one in published() if (one.net, one.budget_kb) == (NET, BUDGET_KB))
    return convert(scheme.config, graph, str(scheme))


def teach(
    board: Transport,
    compiled: Compiled,
    pictures: Sequence[Image.Image],
    lessons: Views,
    folder: Path,
) -> Lesson:
    """Train on the board, one view per step; evaluate pictures and new views before and after."""
    judged = whole(pictures), draw_views(pictures, JUDGED, seed=1)
    rows = [row for views in judged for row in views.batches(compiled)]
    steps = Steps(lessons.batches(compiled), RATE, rows)
    run = train_firmware(board, compiled.artifact, steps, folder)
    return Lesson(run, len(pictures), np.concatenate([views.labels for views in judged]))


def show(lesson: Lesson, names: Sequence[str], board: str) -> Table:
    """Format the board's predictions."""
    steps = len(lesson.run.losses)
    table = Table(title=f"Is it a person? Before and after {steps} steps on {board}")
    for heading in ("picture", "person", "before", "after"):
        table.add_column(heading, justify="left" if heading == "picture" else "right")
    before, after = lesson.people(after=False), lesson.people(after=True)
    for place, name in enumerate(names):
        known = "yes" if place == 0 else "no"
        table.add_row(name, known, f"{before[place]:.0%}", f"{after[place]:.0%}")
    right = [f"{lesson.accuracy(after):.0%} right" for after in (False, True)]
    table.add_row(f"{JUDGED} new views of them", "", *right)
    return table


@click.command()
@click.argument("weights", type=click.Path(path_type=Path, exists=True))
@click.argument("person", type=click.Path(path_type=Path, exists=True))
@click.argument("others", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--device", default="stm32f746", show_default=True)
@click.option("--steps", default=20, show_default=True, type=click.IntRange(1))
def main(weights: Path, person: Path, others: Sequence[Path], device: str, steps: int) -> None:
    """Teach the net of WEIGHTS (mcunet-5fps.npz) that PERSON shows one and OTHERS do not."""
    console, names = Console(markup=False, highlight=False), [x.name for x in (person, *others)]
    try:
        board = board_for(device, load_boards())
        with tempfile.TemporaryDirectory() as place, connect(board) as transport:
            pictures = read_pictures([person, *others])
            lessons = draw_views(pictures, steps, seed=0)
            with step(f"compile for {device}"):
                compiled = compile_for(device, weights, lessons, Path(place) / "artifact")
            with step(f"train and judge on {board.name}"):
                lesson = teach(transport, compiled, pictures, lessons, Path(place))
            sections = (compiled.artifact.folder / "lib" / "memory.txt").read_text()
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    console.print(show(lesson, names, board.name))
    firmware = lesson.run.firmware
    click.echo(sections.rstrip())
    click.echo(
        f"the firmware, its stack included: {firmware.memory_bytes:,} bytes of memory, "
        f"{firmware.flash_bytes:,} of flash; {np.median(lesson.run.instructions) / 1e6:.1f} M "
        "instructions a step"
    )


if __name__ == "__main__":
    main()
