"""Pictures as rows: a folder with one of pictures for each class becomes .npy files for a board.

Codecs stay on this machine: a board reads the numbers that its program takes. The size, the order
of dimensions and the names are the artifact's; rows are written one by one, and may be more than
memory holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from pockengine.backends.artifact import Artifact
from pockengine.compiler.ir.types import F32, I32, I64, TensorType
from pockengine.errors import FinetuneError
from pockengine.files import write_whole

SUFFIXES = (".jpeg", ".jpg", ".png")
CHANNELS = {1: "L", 3: "RGB"}
CLASSES = "classes.txt"


@dataclass(frozen=True)
class PictureForm:
    """What a program takes: pictures by this name, [B, C, H, W] or [B, H, W, C] f32, and labels.

    A pixel p of 0 to 255 becomes (p / 255 - mean) / spread, each one number or one a channel.
    `target` is None where the program reads no labels.
    """

    name: str
    channels_first: bool
    size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    target: str | None
    labels: TensorType | None

    def __post_init__(self) -> None:
        for numbers in (self.mean, self.spread):
            if len(numbers) not in (1, self.channels):
                raise FinetuneError(
                    f"{len(numbers)} numbers for {self.channels} channels; give one, or one each"
                )
        if not all(number > 0 for number in self.spread):
            raise FinetuneError(f"pixels are divided by the spread; {self.spread} has a 0 or less")

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of one picture's row."""
        return (self.channels, *self.size) if self.channels_first else (*self.size, self.channels)

    def read(self, path: Path) -> np.ndarray:
        """Return a picture's row, upright, scaled to cover the size and cut at its middle.

        FinetuneError says what is wrong with a file that cannot be decoded.
        """
        try:
            with Image.open(path) as file:
                upright = ImageOps.exif_transpose(file).convert(CHANNELS[self.channels])
            height, width = self.size
            picture = ImageOps.fit(upright, (width, height), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            unknown = isinstance(error, UnidentifiedImageError)
            raise FinetuneError(f"{path}: {'it is no picture' if unknown else error}") from error
        pixels = np.asarray(picture, np.float32).reshape(*self.size, self.channels)
        mean, spread = (np.asarray(each, np.float32) for each in (self.mean, self.spread))
        scaled = (pixels / np.float32(255) - mean) / spread
        return np.ascontiguousarray(scaled.transpose(2, 0, 1) if self.channels_first else scaled)


@dataclass(frozen=True)
class PictureRows:
    """What was written: how many rows, the classes by label, and what was wrong with the rest."""

    rows: int
    classes: tuple[str, ...]
    left_out: tuple[str, ...]


def picture_form(
    artifact: Artifact, mean: Sequence[float] = (0.0,), spread: Sequence[float] = (1.0,)
) -> PictureForm:
    """Read from an artifact what its training takes; FinetuneError where that is no picture."""
    inputs = artifact.entries["train"].inputs if "train" in artifact.entries else {}
    labels = [(n, t) for n, t in inputs.items() if t.dtype in (I64, I32) and len(t.shape) == 1]
    for name, type_ in inputs.items():
        if type_.dtype is not F32 or len(type_.shape) != 4:
            continue
        first = type_.shape[1] in CHANNELS
        if first or type_.shape[3] in CHANNELS:
            size, channels = (
                (type_.shape[2:], type_.shape[1]) if first else (type_.shape[1:3], type_.shape[3])
            )
            target, of_labels = labels[0] if labels else (None, None)
            shape = (size[0], size[1])
            numbers = (tuple(mean), tuple(spread))
            return PictureForm(name, first, shape, channels, *numbers, target, of_labels)
    shown = ", ".join(f"{name} {type_}" for name, type_ in inputs.items())
    raise FinetuneError(
        f"{artifact.name} trains on no pictures: they are f32 [B, C, H, W] or [B, H, W, C] with 1 "
        f"or 3 channels, and it reads {shown or 'nothing'}"
    )


def write_pictures(folder: Path, form: PictureForm, out: Path, skip_bad: int = 0) -> PictureRows:
    """Write the pictures of a folder's class folders to `out`: NAME.npy of each input, classes.txt.

    Labels count the class folders in the order of their names. FinetuneError where there are none,
    or where more than `skip_bad` pictures cannot be decoded.
    """
    classes = tuple(sorted(path.name for path in folder.glob("*") if path.is_dir()))
    if not classes:
        raise FinetuneError(f"{folder} has no folders; give one with a folder for each class")
    reader = _Reader(folder, form, skip_bad)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            _write_rows(file, reader.rows(classes), form.row)
        if not reader.labels:
            raise FinetuneError(f"{folder} has no pictures that end in {', '.join(SUFFIXES)}")

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / f"{form.name}.npy", write)
        if form.target is not None and form.labels is not None:
            labels = np.asarray(reader.labels, form.labels.dtype.numpy)
            write_whole(out / f"{form.target}.npy", lambda path: _save(path, labels))
        names = "".join(f"{name}\n" for name in classes)
        write_whole(out / CLASSES, lambda path: _write_text(path, names))
    except OSError as error:
        raise FinetuneError(f"rows cannot be written to {out}: {error}") from error
    return PictureRows(len(reader.labels), classes, tuple(reader.left_out))


@dataclass
class _Reader:
    """Reads pictures one by one, and counts those that can be decoded and those that cannot."""

    folder: Path
    form: PictureForm
    skip_bad: int
    labels: list[int] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def rows(self, classes: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the rows of all classes."""
        for label, path in _pictures(self.folder, classes):
            try:
                row = self.form.read(path)
            except FinetuneError as error:
                self.left_out.append(str(error))
                if len(self.left_out) > self.skip_bad:
                    others = f"{self.skip_bad} others; mend it, or leave more out by --skip-bad"
                    raise FinetuneError(f"{error}, after {others}") from error
                continue
            self.labels.append(label)
            yield row


def _pictures(folder: Path, classes: Sequence[str]) -> Iterator[tuple[int, Path]]:
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in SUFFIXES:
                yield label, path


def _write_rows(file: BinaryIO, rows: Iterator[np.ndarray], shape: tuple[int, ...]) -> None:
    """Write a .npy file; its header, which has room for any number, comes again at the end."""
    count = 0
    _write_header(file, (0, *shape))
    begin = file.tell()
    for row in rows:
        file.write(row.tobytes())
        count += 1
    file.seek(0)
    _write_header(file, (count, *shape))
    if file.tell() != begin:
        raise AssertionError("NumPy's header grew with the number of rows")


def _write_header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _save(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
