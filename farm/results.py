"""What was measured: records, one JSON object a line, kept in a database.

SQLite in the user's data folder unless a SQLAlchemy URL says otherwise. Records are only appended.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import sqlalchemy as sql

from pockengine.errors import DatabaseDown, FarmError
from pockengine.farm.database import (
    PATIENCE_S,
    create_engine,
    default_url,
    parse_url,
    patiently,
)
from pockengine.farm.folders import data_folder

T = TypeVar("T")
SCHEMA = 1
MOST_SAMPLES = 10_000


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement: `value` with its spread over `n` repetitions, and all it depends on.

    `samples` are the repetitions in the order in which they were measured. Engines that took turns
    have theirs at the same places, so that they can be compared in pairs.
    """

    time: str
    commit: str
    device: str
    board: str
    emulated: bool
    model: str
    batch: int
    dtype: str
    scheme: str
    threads: int
    engine: str
    engine_version: str
    metric: str
    unit: str
    value: float
    min: float
    max: float
    n: int
    ok: bool
    dataset: str | None = None
    seq_len: int | None = None
    note: str | None = None
    samples: tuple[float, ...] | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Refuse what no reader could use; the error names the field."""
        for name, kind in TYPES.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            # bool is an int to Python and an int is a float to JSON: only the second is meant.
            fits = isinstance(value, (int, float) if kind is float else kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise FarmError(f"record: {name} must be {kind.__name__}, not {value!r}")
            if kind is str and not value:
                raise FarmError(f"record: {name} is empty")
        _check_values(self)

    def to_json(self) -> str:
        """Return one line of JSON; what is not known is left out."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps({"schema": known.pop("schema"), **known}, allow_nan=False)

    @staticmethod
    def from_json(line: str) -> "Record":
        """Read a line that `to_json` wrote; FarmError names what is wrong with another."""
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise FarmError(f"record: not JSON: {error}: {line[:80]!r}") from None
        if not isinstance(values, dict):
            raise FarmError(f"record: not an object: {line[:80]!r}")
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


def _check_values(record: Record) -> None:
    if record.schema != SCHEMA:
        raise FarmError(f"record: schema {record.schema}; this version reads {SCHEMA}")
    for name in ("value", "min", "max"):
        if not math.isfinite(getattr(record, name)):
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
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _from_values(values: Mapping[str, object]) -> Record:
    unknown = sorted(set(values) - set(TYPES) - {"samples"})
    missing = sorted(set(TYPES) - OPTIONAL - set(values))
    if unknown or missing:
        raise FarmError(f"record: unknown fields {unknown}, missing fields {missing}")
    return Record(**values)  # type: ignore[arg-type]


def now() -> str:
    """Return the present as records write it: UTC, to the second."""
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
    """The database of records. One that is away is waited for; what it cannot take is kept here."""

    def __init__(self, url: str | None = None, patience_s: float = PATIENCE_S) -> None:
        """Open a database by SQLAlchemy URL; its tables are made when it is new."""
        self.url = parse_url(url) if url else default_url("results.sqlite")
        self._patience_s = patience_s
        self._engine = create_engine(self.url)
        self._made = False

    def append(self, records: Iterable[Record]) -> None:
        """Store all of the records, once, with those that could not be stored before.

        DatabaseDown when the database stays away: they are kept in a file then, and stored by the
        next call.
        """
        rows = [asdict(record) for record in records]
        unsent = self._unsent()
        if rows:
            unsent.mkdir(parents=True, exist_ok=True)
            part = unsent / f".{token_hex(8)}.part"
            part.write_text("".join(json.dumps(row) + "\n" for row in rows))
            part.rename(unsent / f"{time.time_ns()}-{token_hex(4)}.jsonl")
        for file in sorted(unsent.glob("*.jsonl")):
            try:
                self._store(file)
            except DatabaseDown as error:
                raise DatabaseDown(f"{error}; kept in {unsent}, the next bench stores it") from None
            except FarmError as error:  # trying again would only be refused again
                refused = file.rename(file.with_suffix(".refused"))
                raise FarmError(f"cannot store the records of {refused}: {error}") from None

    def find(self, equal: Mapping[str, object] | None = None) -> list[Record]:
        """Return the records whose fields have the given values, oldest first."""
        query = sql.select(TABLE).order_by(TABLE.c.id)
        for name, value in (equal or {}).items():
            if name not in TYPES:
                raise FarmError(f"results: no field {name!r}; fields: {', '.join(TYPES)}")
            query = query.where(TABLE.c[name] == value)
        rows = self._work(lambda connection: connection.execute(query).mappings().all())
        return [_from_row(dict(row)) for row in rows]

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def _store(self, file: Path) -> None:
        """Store a file's records unless that has been done, and remove it.

        The file's name is stored with them: who comes second finds it, and does nothing.
        """
        try:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
        except FileNotFoundError:  # another process has stored it
            return

        def task(connection: sql.Connection) -> None:
            if connection.execute(sql.select(APPENDS).filter_by(key=file.name)).first() is None:
                connection.execute(sql.insert(APPENDS), {"key": file.name})
                connection.execute(sql.insert(TABLE), [_to_row(row) for row in rows])

        self._work(task)
        file.unlink(missing_ok=True)

    def _work(self, task: Callable[[sql.Connection], T]) -> T:
        def once() -> T:
            with self._engine.begin() as connection:
                if not self._made:
                    METADATA.create_all(connection)
                    _add_samples(connection)
                result = task(connection)
            self._made = True
            return result

        return patiently(self.url, self._patience_s, once)

    def _unsent(self) -> Path:
        """Return the folder of what this database has not taken yet."""
        place = self.url.render_as_string(hide_password=True)
        return data_folder() / "unsent" / hashlib.sha256(place.encode()).hexdigest()[:16]


def _to_row(values: Mapping[str, object]) -> dict[str, object]:
    samples = values.get("samples")
    return {**values, "samples": None if samples is None else json.dumps(samples)}


def _from_row(row: Mapping[str, Any]) -> Record:
    values = {key: row[key] for key in TYPES}
    if row["samples"] is not None:
        values["samples"] = tuple(json.loads(row["samples"]))
    return _from_values(values)


def _add_samples(connection: sql.Connection) -> None:
    """Give a table of records that was made before samples were kept their column."""
    columns = {column["name"] for column in sql.inspect(connection).get_columns(TABLE.name)}
    if "samples" not in columns:
        connection.execute(sql.text(f"ALTER TABLE {TABLE.name} ADD COLUMN samples TEXT"))


def write_lines(records: Iterable[Record], path: Path) -> None:
    """Append records to a file of JSON lines."""
    with path.open("a") as stream:
        stream.writelines(record.to_json() + "\n" for record in records)
