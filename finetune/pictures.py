"""Convert a folder with one folder of pictures per class to .npy rows for a board.

The runner can decode such a folder itself, in each epoch. Rows are for a board that is slow at that
or lacks room for the files, and for a build without a decoder. They are written one by one, and may
exceed memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pockengine.backends.training.picture_form import PictureForm
from pockengine.backends.training.pictures import SUFFIXES, list_classes, list_files
from pockengine.errors import FinetuneError, RuntimeFailure, reason_of
from pockengine.files import write_whole

CLASSES = "classes.txt"


@dataclass(frozen=True)
class PictureRows:
    """Result: number of rows, classes by label, and faults of skipped pictures."""

    rows: int
    classes: tuple[str, ...]
    left_out: tuple[str, ...]


def write_pictures(folder: Path, form: PictureForm, out: Path, skip_bad: int = 0) -> PictureRows:
    """Write the pictures of a folder's class folders to `out`: NAME.npy of each input, classes.txt.

    Labels number the class folders in the order of their names. RuntimeFailure if there are none;
    FinetuneError if more than `skip_bad` pictures cannot be decoded.
    """
    classes = list_classes(folder)
    reader = _Reader(folder, form, skip_bad)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            _write_rows(file, reader.rows(classes), form.row)
        if not reader.labels:
            raise FinetuneError(f"{folder} has no pictures that end in {', '.join(SUFFIXES)}")
        for old in (f"{form.target}.npy", CLASSES):  # a kill must not leave them beside new rows
            (out / old).unlink(missing_ok=True)

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / f"{form.name}.npy", write)
        if form.target is not None and form.labels is not None:
            labels = np.asarray(reader.labels, form.labels.dtype.numpy)
            write_whole(out / f"{form.target}.npy", lambda path: _save(path, labels))
        names = "".join(f"{name}\n" for name in classes)
        write_whole(out / CLASSES, lambda path: _write_text(path, names))
    except OSError as error:
        raise FinetuneError(f"rows cannot be written to {out}: {reason_of(error)}") from error
    return PictureRows(len(reader.labels), classes, tuple(reader.left_out))


@dataclass
class _Reader:
    """Reads pictures one by one, and counts decodable and damaged ones."""

    folder: Path
    form: PictureForm
    skip_bad: int
    labels: list[int] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def rows(self, classes: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the rows of all classes."""
        for label, path in list_files(self.folder, classes):
            try:
                row = self.form.read(path)
            except RuntimeFailure as error:
                self.left_out.append(str(error))
                if len(self.left_out) > self.skip_bad:
                    others = f"{self.skip_bad} others; mend it, or leave more out by --skip-bad"
                    raise FinetuneError(f"{error}, after {others}") from error
                continue
            self.labels.append(label)
            yield row


def _write_rows(file: BinaryIO, rows: Iterator[np.ndarray], shape: tuple[int, ...]) -> None:
    """Write a .npy file; its header, padded for any number of rows, is rewritten at the end."""
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
