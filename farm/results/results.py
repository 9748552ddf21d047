"""Measurements: records, one JSON object per line, stored in a database."""

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import sqlalchemy as sql

from pockengine.errors import DatabaseDown, FarmError
from pockengine.farm.load import BUSY
from pockengine.farm.results.database import (
    PATIENCE_S,
    create_engine,
    default_url,
    parse_url,
    patiently,
    transaction,
)
from pockengine.folders import data_folder

T = TypeVar("T")
SCHEMA = 1
MOST_SAMPLES = 10_000
LARGEST = 1e100
"""Far beyond any measurement, and no difference of two overflows."""
PUBLISHED = ("cpu", "command")
"""Additional fields of records in docs/results."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement: `value` with its spread over `n` repetitions, and all it depends on.

    `samples` are the repetitions in the order in which they were measured. Engines that took turns
    have theirs at the same places, so that they can be compared in pairs. Those of
    `arena_bound_bytes` are the bytes alive at each kernel of a step.
    """

    time: str
    """UTC, in ISO 8601."""
    commit: str
    """Of this repository; `-dirty` marks uncommitted changes."""
    device: str
    """The kind of machine: a device file's name."""
    board: str
    """The machine."""
    emulated: bool
    model: str
    batch: int
    """Rows of a step."""
    dtype: str
    scheme: str
    threads: int
    engine: str
    """`pockengine`, or a reference: `torch-eager`, `tf-graph`, ..."""
    engine_version: str
    metric: str
    unit: str
    value: float
    """The figure; of several repetitions their median."""
    min: float
    max: float
    n: int
    """Number of repetitions."""
    ok: bool
    """Whether the run passed its correctness check."""
    dataset: str | None = None
    seq_len: int | None = None
    """Tokens of a row."""
    note: str | None = None
    samples: tuple[float, ...] | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Reject values that no reader could use; the error names the field."""
        for name, kind in TYPES.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            # bool is an int to Python and an int is a float to JSON: only the second is meant.
            fits = isinstance(value, (int, float) if kind is float else kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise FarmError(f"record: {name} must be {kind.__name__}, not {value!r}")
            if kind is str:
                _check_text(name, value)
            elif not _fits(value):
                raise FarmError(f"record: {name} does not fit 64 bits")
        _check_values(self)

    @property
    def busy(self) -> bool:
        """Whether it is marked: other processes used the machine during the measurement."""
        return self.note is not None and BUSY in self.note

    def to_json(self) -> str:
        """Return one line of JSON, without unknown fields."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps({"schema": known.pop("schema"), **known}, allow_nan=False)

    @staticmethod
    def from_json(line: str) -> "Record":
        """Read a line that `to_json` wrote; FarmError names the fault of any other."""
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: JSON, or a huge number
            raise FarmError(f"record: not JSON: {error}: {line[:80]!r}") from None
        if not isinstance(values, dict):
            raise FarmError(f"record: not an object: {line[:80]!r}")
        for name in PUBLISHED:
            values.pop(name, None)
        if isinstance(values.get("samples"), list):
            values["samples"] = tuple(values["samples"])
        return _from_values(values)


# The plain type of each field, read off the dataclass once.
KINDS = {"str": str, "int": int, "float": float, "bool": bool}
TYPES: dict[str, type] = {
    field.name: next(kind for kind in KINDS.values() if kind.__name__ in str(field.type))
    for field in fields(Record)
    if field.name != "samples"
}
OPTIONAL = {"dataset", "seq_len", "note"}


def _check_text(name: str, text: str) -> None:
    """Reject text that a database cannot store: NUL in PostgreSQL, lone surrogates in all."""
    if not text:
        raise FarmError(f"record: {name} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FarmError(f"record: {name} is not valid Unicode: {text[:40]!r}") from None
    if "\0" in text:
        raise FarmError(f"record: {name} holds a NUL: {text[:40]!r}")


def _check_values(record: Record) -> None:
    if record.schema != SCHEMA:
        raise FarmError(f"record: schema {record.schema}; this version reads {SCHEMA}")
    for name in ("value", "min", "max"):
        if not abs(getattr(record, name)) <= LARGEST:
            raise FarmError(f"record: {name} of {record.metric} is {getattr(record, name)}")
    _check_samples(record)
    if not record.min <= record.value <= record.max:
        raise FarmError(
            f"record: {record.metric} {record.value} is outside {record.min} to {record.max}"
        )
    for name in ("batch", "threads", "n"):
        if getattr(record, name) < 1:
            raise FarmError(f"record: {name} must be at least 1, not {getattr(record, name)}")
    try:
        aware = datetime.fromisoformat(record.time).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise FarmError(f"record: time {record.time!r} is not ISO 8601 with a time zone")


def _check_samples(record: Record) -> None:
    if record.samples is not None:
        numbers = isinstance(record.samples, tuple) and all(map(_is_number, record.samples))
        if not numbers or not 0 < len(record.samples) <= MOST_SAMPLES:
            raise FarmError(f"record: samples of {record.metric} are no list of numbers")


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return _fits(value) and math.isfinite(value)


def _fits(value: float) -> bool:
    """Whether a database can store a number; Python's integers have no end."""
    return not isinstance(value, int) or abs(value) < 1 << 63


def _from_values(values: Mapping[str, object]) -> Record:
    unknown = sorted(set(values) - set(TYPES) - {"samples"})
    missing = sorted(set(TYPES) - OPTIONAL - set(values))
    if unknown or missing:
        raise FarmError(f"record: unknown fields {unknown}, missing fields {missing}")
    return Record(**values)  # type: ignore[arg-type]


def now() -> str:
    """Return the current time in the records' form: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


COLUMN_TYPES: dict[type, type[sql.types.TypeEngine[Any]]] = {
    str: sql.Text,
    int: sql.BigInteger,
    float: sql.Double,
    bool: sql.Boolean,
}
METADATA = sql.MetaData()
TABLE = sql.Table(
    "records",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    *(
        sql.Column(name, COLUMN_TYPES[kind], nullable=name in OPTIONAL)
        for name, kind in TYPES.items()
    ),
    sql.Column("samples", sql.Text),  # JSON
)


APPENDS = sql.Table("appends", METADATA, sql.Column("key", sql.Text, primary_key=True))


class Results:
    """The database of records. Waits for an unavailable one; rejected records are stored
    locally.
    """

    def __init__(self, url: str | None = None, patience_s: float = PATIENCE_S) -> None:
        """Open a database by SQLAlchemy URL; its tables are made when it is new."""
        self.url = parse_url(url) if url else default_url("results.sqlite")
        self._patience_s = patience_s
        self._reader = create_engine(self.url)
        self._writer = create_engine(self.url, exclusive=True)
        self._made = False

    def open(self) -> None:
        """Make the tables of a new database; DatabaseDown or FarmError if it cannot be used."""
        self._work(self._writer, lambda _: None)

    def append(self, records: Iterable[Record]) -> None:
        """Store all records once, with earlier ones that could not be stored.

        DatabaseDown if the database stays unavailable: they are kept in a file, and stored by the
        next call. FarmError if it rejects them: they are set aside. Leftovers of earlier calls that
        cannot be stored, such as a truncated line, are set aside with a warning.
        """
        rows = [asdict(replace(record)) for record in records]  # replace() checks them again
        unsent = self._unsent()
        own = _keep(unsent, rows) if rows else None
        for file in sorted(unsent.glob("*.jsonl")):
            try:
                lost = self._store(file)
            except DatabaseDown as error:
                raise DatabaseDown(f"{error}; kept in {unsent}, the next bench stores it") from None
            except FarmError as error:  # a retry would be rejected too
                lost = f"cannot store the records of {_set_aside(file)}: {error}"
            if lost and file == own:
                raise FarmError(lost)
            if lost:
                warnings.warn(f"{lost}; they are of an earlier run", stacklevel=2)

    def find(self, equal: Mapping[str, object] | None = None) -> list[Record]:
        """Return the records whose fields have the given values, oldest first."""
        query = sql.select(TABLE).order_by(TABLE.c.id)
        for name, value in (equal or {}).items():
            if name not in TYPES:
                raise FarmError(f"results: no field {name!r}; fields: {', '.join(TYPES)}")
            query = query.where(TABLE.c[name] == value)
        rows = self._work(self._reader, lambda c: c.execute(query).mappings().all())
        return [_from_row(dict(row)) for row in rows]

    def close(self) -> None:
        """Release the connections."""
        self._reader.dispose()
        self._writer.dispose()

    def _store(self, file: Path) -> str:
        """Store a file's records unless they are stored; return the errors of the others.

        The file's name is stored with them: a second process finds it, and does nothing.
        """
        try:
            rows, damaged = _read_rows(file)
        except FileNotFoundError:  # another process has stored it
            return ""

        def task(connection: sql.Connection) -> None:
            if connection.execute(sql.select(APPENDS).filter_by(key=file.name)).first() is None:
                connection.execute(sql.insert(APPENDS), {"key": file.name})
                if rows:
                    connection.execute(sql.insert(TABLE), rows)

        self._work(self._writer, task)
        if damaged:
            return f"{damaged} lines of {_set_aside(file)} are no records; the others are stored"
        file.unlink(missing_ok=True)
        return ""

    def _work(self, engine: sql.Engine, task: Callable[[sql.Connection], T]) -> T:
        def with_samples(connection: sql.Connection) -> T:
            if not self._made:
                _add_samples(connection)
            return task(connection)

        def once() -> T:
            return transaction(engine, with_samples, None if self._made else METADATA)

        result = patiently(self.url, self._patience_s, once)
        self._made = True
        return result

    def _unsent(self) -> Path:
        """Return the folder of records that this database has not stored yet."""
        place = self.url.render_as_string(hide_password=True)
        return data_folder() / "unsent" / hashlib.sha256(place.encode()).hexdigest()[:16]


def _keep(folder: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """Write rows to a new file, complete and synced before it is renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{token_hex(8)}.part"
    with part.open("w") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
        stream.flush()
        os.fsync(stream.fileno())
    return part.rename(folder / f"{time.time_ns()}-{token_hex(4)}.jsonl")


def _read_rows(file: Path) -> tuple[list[dict[str, object]], int]:
    """Return the rows of a file, and the number of lines without one."""
    rows: list[dict[str, object]] = []
    damaged = 0
    for line in file.read_text(errors="replace").splitlines():
        try:
            rows.append(_to_row(asdict(Record.from_json(line))))
        except FarmError:
            damaged += 1
    return rows, damaged


def _set_aside(file: Path) -> Path:
    """Rename a file so that it is not stored again; return its new name."""
    aside = file.with_suffix(".refused")
    with suppress(FileNotFoundError):  # another process has done so
        file.rename(aside)
    return aside


def _to_row(values: Mapping[str, object]) -> dict[str, object]:
    samples = values.get("samples")
    return {**values, "samples": None if samples is None else json.dumps(samples)}


def _from_row(row: Mapping[str, Any]) -> Record:
    values = {key: row[key] for key in TYPES}
    if row["samples"] is not None:
        values["samples"] = tuple(json.loads(row["samples"]))
    return _from_values(values)


def _add_samples(connection: sql.Connection) -> None:
    """Add the column of samples to an old table of records."""
    columns = {column["name"] for column in sql.inspect(connection).get_columns(TABLE.name)}
    if "samples" not in columns:
        connection.execute(sql.text(f"ALTER TABLE {TABLE.name} ADD COLUMN samples TEXT"))


def write_lines(records: Iterable[Record], path: Path) -> None:
    """Append records to a file of JSON lines, after a line that was cut; its folder is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(record.to_json() + "\n" for record in records).encode()
    with path.open("ab", buffering=0) as stream:  # one write: other writers' lines stay whole
        stream.write(b"\n" + text if text and _is_cut(path) else text)


def _is_cut(path: Path) -> bool:
    """Whether a file's last line has no end, as a full disk leaves it."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() != b"\n"


def read_lines(path: Path) -> tuple[Record, ...]:
    """Return the records of a file of JSON lines; empty if there is no file yet.

    FarmError names the first line that is no record.
    """
    if not path.exists():
        return ()
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            records.append(Record.from_json(line.decode()))
        except (FarmError, UnicodeDecodeError) as error:
            raise FarmError(f"{path}, line {number}: {error}; remove that line") from None
    return tuple(records)
