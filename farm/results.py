"""What was measured: records, one JSON object a line, kept in a database.

SQLite in the user's data folder unless a SQLAlchemy URL says otherwise. Records are only appended.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from pockengine.errors import FarmError
from pockengine.farm.folders import data_folder

SCHEMA = 1
LOCK_TIMEOUT_S = 30  # how long to wait for another writer of the same SQLite file


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement: `value` with its spread over `n` repetitions, and all it depends on."""

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
        return _from_values(values)


# The plain type of each field, read off the dataclass once.
KINDS = {"str": str, "int": int, "float": float, "bool": bool}
TYPES: dict[str, type] = {
    field.name: next(kind for kind in KINDS.values() if kind.__name__ in str(field.type))
    for field in fields(Record)
}
OPTIONAL = {"dataset", "seq_len", "note"}


def _check_values(record: Record) -> None:
    if record.schema != SCHEMA:
        raise FarmError(f"record: schema {record.schema}; this version reads {SCHEMA}")
    for name in ("value", "min", "max"):
        if not math.isfinite(getattr(record, name)):
            raise FarmError(f"record: {name} of {record.metric} is {getattr(record, name)}")
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


def _from_values(values: Mapping[str, object]) -> Record:
    unknown = sorted(set(values) - set(TYPES))
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
)


class Results:
    """The database of records."""

    def __init__(self, url: str | None = None) -> None:
        """Open a database by SQLAlchemy URL, making its table when it is new."""
        self.url = _parse(url) if url else _default_url()
        options = {"timeout": LOCK_TIMEOUT_S} if self.url.get_backend_name() == "sqlite" else {}
        try:
            self._engine = sql.create_engine(self.url, connect_args=options)
            METADATA.create_all(self._engine)
        except (sql.exc.SQLAlchemyError, ImportError) as error:
            raise FarmError(f"{self.url!r}: cannot open the results: {error}") from None

    def append(self, records: Iterable[Record]) -> None:
        """Store all of the records or, on an error, none."""
        rows = [asdict(record) for record in records]
        if not rows:
            return
        try:
            with self._engine.begin() as connection:
                connection.execute(sql.insert(TABLE), rows)
        except sql.exc.SQLAlchemyError as error:
            raise FarmError(f"{self.url!r}: cannot store {len(rows)} records: {error}") from None

    def find(self, equal: Mapping[str, object] | None = None) -> list[Record]:
        """Return the records whose fields have the given values, oldest first."""
        query = sql.select(TABLE).order_by(TABLE.c.id)
        for name, value in (equal or {}).items():
            if name not in TYPES:
                raise FarmError(f"results: no field {name!r}; fields: {', '.join(TYPES)}")
            query = query.where(TABLE.c[name] == value)
        with self._engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return [_from_values({key: row[key] for key in TYPES}) for row in rows]

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()


def write_lines(records: Iterable[Record], path: Path) -> None:
    """Append records to a file of JSON lines."""
    with path.open("a") as stream:
        stream.writelines(record.to_json() + "\n" for record in records)


def _parse(url: str) -> sql.URL:
    try:
        return sql.make_url(url)
    except sql.exc.ArgumentError:
        # The text is not shown: it may hold a password.
        raise FarmError(
            "cannot open the results: not a SQLAlchemy URL; one is sqlite:////tmp/results.sqlite"
        ) from None


def _default_url() -> sql.URL:
    folder = data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return sql.URL.create("sqlite", database=str(folder / "results.sqlite"))
