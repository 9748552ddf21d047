"""Records of `docs/results`: a bench's records, each with its CPU and command."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.results.results import Record

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@dataclass(frozen=True)
class Figure:
    """One measurement of the documentation.

    `cpu` is the measured or emulated processor, `command` repeats the measurement.
    Records converted from a hand-written table have the `time` and `commit` of the commit that
    wrote the table.
    """

    record: Record
    cpu: str
    command: str

    def __getattr__(self, name: str) -> object:
        """Return a field of the record."""
        return getattr(self.record, name)

    def matches(self, fields: Mapping[str, object]) -> bool:
        """Return whether each field equals its value, or one of a tuple of values."""
        return all(
            getattr(self, name) in (value if isinstance(value, tuple) else (value,))
            for name, value in fields.items()
        )

    @property
    def run(self) -> tuple[str, str]:
        """Key of the run: equal for figures that were measured together."""
        return self.record.time, self.command


def read_figure(line: str, cpu: str = "", command: str = "") -> Figure:
    """Read a line; FarmError names a missing or wrong field.

    `cpu` and `command` are the defaults of lines without them: records of a study.
    """
    values = json.loads(line)
    places = [values.pop("cpu", cpu), values.pop("command", command)]
    if not all(isinstance(place, str) and place for place in places):
        raise FarmError(f"results: a record needs cpu and command: {line[:80]!r}")
    return Figure(Record.from_json(json.dumps(values)), *places)


def read_figures(path: Path, cpu: str = "", command: str = "") -> list[Figure]:
    """Read a file of records in order."""
    return [read_figure(line, cpu, command) for line in path.read_text().splitlines()]
