import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from pockengine.errors import DatabaseDown, FarmError
from pockengine.farm.results.database import patiently
from pockengine.farm.results.results import Record, Results, now, read_lines, write_lines
from pockengine.tests.farm.helpers import record


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'results.sqlite'}"


def test_records_round_trip_through_json() -> None:
    one = record(note="a ‘note’", seq_len=128)

    assert Record.from_json(one.to_json()) == one


def test_published_records_are_read_without_a_command() -> None:
    one = record()
    line = json.dumps({**json.loads(one.to_json()), "cpu": "Cortex-A72", "command": "bench"})

    assert Record.from_json(line) == one


def test_unknown_fields_are_omitted() -> None:
    line = record().to_json()

    assert "\n" not in line
    assert json.loads(line)["schema"] == 1
    assert "seq_len" not in json.loads(line)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": float("nan")}, "value of guest_instructions is nan"),
        ({"max": float("inf")}, "max of guest_instructions is inf"),
        ({"min": -1.7e308}, "min of guest_instructions is -1.7e"),
        ({"value": 4.0}, "outside 1.0 to 3.0"),
        ({"n": 0}, "n must be at least 1"),
        ({"batch": True}, "batch must be int"),
        ({"ok": 1}, "ok must be bool"),
        ({"engine": ""}, "engine is empty"),
        ({"engine": None}, "engine must be str"),
        ({"time": "2026-01-02"}, "not ISO 8601 with a time zone"),
        ({"time": "yesterday"}, "not ISO 8601 with a time zone"),
        ({"schema": 2}, "schema 2"),
        ({"n": 1 << 63}, "n does not fit 64 bits"),
        ({"value": 10**400}, "value does not fit 64 bits"),
        ({"samples": (10**400,)}, "are no list of numbers"),
        ({"note": "a\0b"}, "note holds a NUL"),
        ({"board": "\udc80"}, "board is not valid Unicode"),
    ],
)
def test_invalid_records_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FarmError, match=message):
        record(**changes)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "not JSON"), ("[]", "not an object"), ('{"engine": "x", "a": 1}', r"\['a'\].*batch")],
)
def test_lines_that_are_not_records_are_refused(line: str, message: str) -> None:
    with pytest.raises(FarmError, match=message):
        Record.from_json(line)


def test_stored_records_are_read_oldest_first(tmp_path: Path) -> None:
    stored = [record(scheme=name) for name in ("full", "bias-only")]
    Results(sqlite(tmp_path)).append(stored)

    assert Results(sqlite(tmp_path)).find() == stored
    assert (tmp_path / "results.sqlite").stat().st_mode & 0o777 == 0o600


def test_records_are_found_by_their_fields(tmp_path: Path) -> None:
    results = Results(sqlite(tmp_path))
    results.append([record(scheme="full"), record(scheme="bias-only"), record(device="host")])

    found = results.find({"device": "rpi4", "scheme": "bias-only"})

    assert [one.scheme for one in found] == ["bias-only"]
    with pytest.raises(FarmError, match=r"no field 'color'.*scheme"):
        results.find({"color": "red"})


def test_storing_is_atomic(tmp_path: Path) -> None:
    results = Results(sqlite(tmp_path))
    good, bad = record(), replace(record())
    object.__setattr__(bad, "engine", None)  # as a faulty caller might; NOT NULL refuses it

    with pytest.raises(FarmError, match=r"record: engine must be str"):
        results.append([good, bad])
    results.append([])
    assert results.find() == []


def test_refused_records_are_set_aside_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    results = Results(sqlite(tmp_path))
    assert results.find() == []
    trigger = "BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no'); END"
    with sql.create_engine(sqlite(tmp_path)).begin() as connection:
        connection.execute(sql.text(f"CREATE TRIGGER refuse {trigger}"))

    with pytest.raises(FarmError, match=r"cannot store the records of .*refused"):
        results.append([record()])
    results.append([])

    assert len(list((tmp_path / "data").rglob("*.refused"))) == 1


def test_truncated_lines_lose_only_their_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "results.sqlite").mkdir()
    began = time.monotonic()
    with pytest.raises(DatabaseDown):
        Results(sqlite(tmp_path)).append([record(scheme="a"), record(scheme="b")])
    assert time.monotonic() - began < 60  # it does not wait for a permanent failure
    (tmp_path / "results.sqlite").rmdir()
    (stored,) = (tmp_path / "data").rglob("*.jsonl")
    stored.write_bytes(stored.read_bytes()[:-30])

    results = Results(sqlite(tmp_path))
    with pytest.warns(UserWarning, match=r"1 lines of .*refused are no records"):
        results.append([record(scheme="new")])
    results.append([])

    assert [one.scheme for one in results.find()] == ["a", "new"]


WRITER = """
import sys
import time
from pockengine.farm.results.results import Results
from pockengine.tests.farm.helpers import record
results = Results(sys.argv[1])
for i in range(25):
    results.append([record(scheme=f"{sys.argv[2]}.{i}")])
"""


def test_writers_do_not_disturb_each_other(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, sqlite(tmp_path), str(i)], env=environment)
        for i in range(4)
    ]

    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    stored = sorted(one.scheme for one in Results(sqlite(tmp_path)).find())
    assert stored == sorted(f"{writer}.{i}" for writer in range(4) for i in range(25))


def test_results_are_stored_in_the_user_data_folder_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    Results().append([record()])

    assert (tmp_path / "pockengine" / "results.sqlite").stat().st_size > 0


@pytest.mark.parametrize("url", ["nosuch://x/y", "not a url", "sqlite:////nowhere/at/all.sqlite"])
def test_error_names_a_database_that_cannot_be_opened(url: str) -> None:
    with pytest.raises(FarmError, match=r"cannot open the database"):
        Results(url)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(FarmError, match=r"psycopg is not installed here: pip install .*postgres"):
        Results("postgresql+psycopg://farm@db.example/results")
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(FarmError, match=r"psycopg2 is not installed here: pip install psycopg2"):
        Results("postgresql+psycopg2://farm@db.example/results")


def test_a_database_with_other_tables_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as other:
        other.execute("create table records (name text)")
    with (
        closing(Results(f"sqlite:///{tmp_path}/other.sqlite")) as results,
        pytest.raises(DatabaseDown, match=r"other tables than this version.*no such column"),
    ):
        results.find()


def test_passwords_in_urls_are_hidden() -> None:
    with pytest.raises(FarmError) as caught:
        Results("nosuch://user:secret@host/db")
    assert "secret" not in str(caught.value)


def test_waiting_for_a_database_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    fault = sql.exc.OperationalError("", None, sqlite3.OperationalError("connection refused"))

    def refused() -> None:
        raise fault

    with pytest.raises(DatabaseDown, match="connection refused"):
        patiently(sql.make_url("postgresql://user:secret@host/db"), 4.0, refused)

    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("trying again for up to") == 1
    assert "host/db" in shown
    assert "secret" not in shown


def test_records_for_an_unavailable_database_are_stored_later_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "results.sqlite").mkdir()  # a file that cannot be opened
    with pytest.raises(DatabaseDown, match=r"does not answer.*the next bench stores it"):
        Results(sqlite(tmp_path), patience_s=0.2).append([record(scheme="first")])
    (tmp_path / "results.sqlite").rmdir()

    results = Results(sqlite(tmp_path))
    results.append([record(scheme="second")])
    results.append([])

    assert [one.scheme for one in results.find()] == ["first", "second"]


def test_records_with_an_unconfirmed_commit_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(sqlite(tmp_path))
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # as if killed before cleaning up
    results.append([record()])
    monkeypatch.undo()

    Results(sqlite(tmp_path)).append([])

    assert len(results.find()) == 1


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_lines([record()], path)
    write_lines([record(time=now())], path)

    assert len([Record.from_json(line) for line in path.read_text().splitlines()]) == 2


def test_a_cut_line_is_named_and_does_not_damage_the_next(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_lines([record()], path)
    path.write_bytes(path.read_bytes()[:-9])
    write_lines([record(scheme="next")], path)

    with pytest.raises(FarmError, match=r"out.jsonl, line 1: record: not JSON.*remove that line"):
        read_lines(path)
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    assert [one.scheme for one in read_lines(path)] == ["next"]
