"""Data sets of Hugging Face's package `datasets`, as its `save_to_disk` writes them."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError


def read_dataset(path: Path) -> Iterator[Mapping[str, Any]]:
    """Return a folder's rows without their empty columns.

    FinetuneError if the package is missing, or the folder holds several splits or no data set.
    """
    try:
        package = import_module("datasets")
    except ImportError as error:
        raise FinetuneError(
            f"{path} is a folder, which the package datasets reads: pip install datasets, or give "
            "a file of JSON lines"
        ) from error
    try:
        found = package.load_from_disk(str(path))
    except Exception as error:  # datasets raises anything for a damaged folder
        raise FinetuneError(
            f"{path} is no data set that save_to_disk wrote: {error}; give a file of JSON lines"
        ) from error
    if isinstance(found, Mapping):
        first = next(iter(found), "train")
        raise FinetuneError(f"{path} has the splits {', '.join(found)}; give {path / first}")
    if not len(found):
        raise FinetuneError(f"{path} has no rows")
    return ({name: value for name, value in row.items() if value is not None} for row in found)
