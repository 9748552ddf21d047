"""A folder of images as training data: decoded when a batch needs them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from pockengine.backends.training.signature import Signature
from pockengine.errors import RuntimeFailure
from pockengine.extras import pip_command

SUFFIXES = (".jpeg", ".jpg", ".png")


@dataclass(frozen=True)
class Pictures:
    """A folder with one folder of JPEG and PNG images per class.

    Images are scaled to cover the model's input and center-cropped; a pixel p of 0 to 1 becomes (p
    - mean) / std, each one number or one per channel. Labels number the class folders in the order
    of their names.
    """

    folder: str | PathLike[str]
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)


@dataclass(frozen=True)
class LazyRows:
    """Rows [N, ...] that are read on demand, one by one."""

    paths: Sequence[Path]
    row: tuple[int, ...]
    read: Callable[[Path], np.ndarray]

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """f32."""
        return np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """N, and the shape of a row."""
        return (len(self.paths), *self.row)

    @property
    def ndim(self) -> int:
        """Number of dimensions, including that of the rows."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        places = np.arange(len(self))[index]
        return np.stack([self.read(self.paths[place]) for place in places])


def read_folder(
    signature: Signature, data: Pictures, entry: str
) -> dict[str, "np.ndarray | LazyRows"]:
    """Return an entry's inputs from a folder of images; RuntimeFailure if it has others."""
    try:
        from pockengine.backends.training.picture_form import picture_form
    except ImportError as error:
        raise RuntimeFailure(
            f"a folder of pictures needs Pillow, not installed here: {pip_command('pictures')}"
        ) from error

    form = picture_form(signature.name, signature.inputs, data.mean, data.std)
    folder = Path(data.folder)
    files = list(list_files(folder, list_classes(folder)))
    if not files:
        raise RuntimeFailure(f"{folder} has no pictures that end in {', '.join(SUFFIXES)}")
    rows: dict[str, np.ndarray | LazyRows] = {
        form.name: LazyRows([path for _, path in files], form.row, form.read)
    }
    if form.target is not None and form.labels is not None:
        rows[form.target] = np.array([label for label, _ in files], form.labels.dtype.numpy)
    missing = sorted(set(signature.reads(entry)) - set(rows))
    if missing:
        raise RuntimeFailure(
            f"a folder of pictures gives {', '.join(rows)}, and {entry} of {signature.name} also "
            f"reads {', '.join(missing)}; give arrays by name"
        )
    return {name: rows[name] for name in signature.reads(entry)}


def list_classes(folder: Path) -> tuple[str, ...]:
    """Return the class folders' names in order; RuntimeFailure if there are none."""
    classes = tuple(sorted(path.name for path in folder.glob("[!.]*") if path.is_dir()))
    if not classes:
        raise RuntimeFailure(f"{folder} has no folders; give one with a folder for each class")
    for name in classes:
        if [name] != name.encode(errors="replace").decode().splitlines():
            raise RuntimeFailure(
                f"{folder} has a class named {name!r}; give it a name of one line in UTF-8"
            )
    return classes


def list_files(folder: Path, classes: Sequence[str]) -> Iterator[tuple[int, Path]]:
    """Yield the images of each class with its number, in the order of their names."""
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            a_file = path.is_symlink() or not path.is_dir()
            if path.suffix.lower() in SUFFIXES and a_file and not hidden:
                yield label, path
