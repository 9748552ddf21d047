"""What the bench writes and compares with at its end: refused before any work if it cannot."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pockengine.errors import FarmError
from pockengine.farm.cli.base import from_user
from pockengine.farm.results.commits import common_commit
from pockengine.farm.results.gate import check_baseline
from pockengine.farm.results.results import Record, Results, read_lines, write_lines


def check_stores(options: Mapping[str, Any], json_file: Path | None, database: str | None) -> None:
    """Open the database, the file of records and the folders that the user named.

    FarmError names the one that cannot be used, and a baseline that git does not know. A database
    that is down is waited for.
    """
    if options["baseline"] is not None:
        common_commit(options["baseline"], "HEAD")
    results = Results(database)
    try:
        results.open()
    finally:
        results.close()
    if json_file is not None:
        _check_file(json_file, options["resume"])
    for name in ("out", "report"):
        if options[name] is not None:
            _check_folder(name, from_user(options[name]))


def check_measured(
    baseline: str | None, device: str, models: Iterable[str], database: str | None
) -> None:
    """FarmError if a baseline has no stored record of these models on a device."""
    if baseline is None:
        return
    results = Results(database)
    try:
        check_baseline(baseline, device, set(models), results)
    finally:
        results.close()


def store(records: Iterable[Record], json_file: Path | None, database: str | None) -> None:
    """Append records to the file and to the database; an error of one does not lose the other's."""
    rows = list(records)
    try:
        if json_file is not None:
            _append(rows, from_user(json_file))
    finally:
        results = Results(database)
        try:
            results.append(rows)
        finally:
            results.close()


def _append(records: Iterable[Record], path: Path) -> None:
    try:
        write_lines(records, path)
    except OSError as error:
        raise FarmError(
            f"--json {path} cannot be written: {error.strerror}; the database has the records"
        ) from None


def _check_file(json_file: Path, resume: bool) -> None:
    path = from_user(json_file)
    try:
        write_lines((), path)
    except OSError as error:
        raise FarmError(
            f"--json {path} cannot be written: {error.strerror}; name another file"
        ) from None
    if resume:
        read_lines(path)


def _check_folder(name: str, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FarmError(
            f"--{name} {path} cannot be made: {error.strerror}; name another folder"
        ) from None
