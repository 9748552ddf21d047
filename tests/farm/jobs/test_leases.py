"""Leases between real processes: queue, priority, timeout, and killed owners."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sql

from pockengine.errors import DatabaseDown, FarmError
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.owner import HeartbeatWatch, Owner, start_time
from pockengine.farm.jobs.quarantine import Quarantine
from pockengine.farm.jobs.store import LEASES, TICKETS, Store
from pockengine.tests.farm.helpers import eventually

# Leases a board, prints a line, and keeps the lease until it is killed.
HOLDER = """
import sys, time
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.store import Store
lease = Leases(Store(sys.argv[1])).acquire(sys.argv[2:])
print(lease.board, flush=True)
time.sleep(60)
"""


@pytest.fixture(name="url")
def a_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/farm.sqlite"


@contextmanager
def client(url: str, label: str = "me") -> Iterator[Leases]:
    with (
        closing(Store(url)) as store,
        closing(Leases(store, Owner.here(label), beat_s=0.1)) as leases,
    ):
        yield leases


@contextmanager
def holder(url: str, *boards: str) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, url, *boards]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waiting(url: str) -> int:
    """Return the number of tickets in the queue."""
    with closing(Store(url)) as store:
        count = sql.select(sql.func.count()).select_from(TICKETS)
        return int(store.work(lambda connection: connection.execute(count)).scalar_one())


def test_two_clients_never_lease_one_board(url: str) -> None:
    with (
        client(url) as mine,
        client(url) as theirs,
        mine.lease(["a", "b"]) as first,
        theirs.lease(["a", "b"]) as second,
    ):
        assert {first.board, second.board} == {"a", "b"}
        with pytest.raises(FarmError, match=r"no board within 0.1 s: a is leased to me; b is"):
            theirs.acquire(["a", "b"], wait_s=0.1)


def test_boards_go_to_the_highest_priority_then_to_the_first_request(url: str) -> None:
    order: list[str] = []

    def in_queue(tickets: int) -> bool:
        return waiting(url) == tickets

    def request(name: str, priority: int) -> None:
        with client(url, name) as leases, leases.lease(["a"], priority):
            order.append(name)

    with client(url) as mine:
        lease = mine.acquire(["a"])
        assert lease is not None
        threads = []
        for place, (name, priority) in enumerate((("first", 0), ("second", 0), ("urgent", 9)), 1):
            threads.append(threading.Thread(target=request, args=(name, priority)))
            threads[-1].start()
            assert eventually(partial(in_queue, place))
        mine.release(lease)
        for thread in threads:
            thread.join(30)

    assert order == ["urgent", "first", "second"]


def test_waiting_for_one_board_does_not_block_others(url: str) -> None:
    with client(url) as mine, client(url) as patient, client(url) as other:
        with mine.lease(["a"]):
            thread = threading.Thread(target=lambda: patient.acquire(["a"], 9))
            thread.start()
            assert eventually(lambda: waiting(url) == 1)
            with other.lease(["a", "b"], wait_s=10) as lease:
                assert lease.board == "b"
        thread.join(30)


def test_board_of_a_killed_owner_is_free_immediately(url: str) -> None:
    with holder(url, "a") as process, client(url) as mine:
        assert printed(process) == "a"
        with pytest.raises(FarmError, match="a is leased to"):
            mine.acquire(["a"], wait_s=0)
        process.send_signal(signal.SIGKILL)
        process.wait(10)

        with mine.lease(["a"], wait_s=10) as lease:
            assert lease.board == "a"


def test_killed_waiting_owners_are_removed(url: str) -> None:
    with client(url) as mine:
        with mine.lease(["a"]), holder(url, "a") as process:
            assert eventually(lambda: waiting(url) == 1)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        with client(url) as other, other.lease(["a"], wait_s=10) as lease:
            assert lease.board == "a"


def test_reused_process_ids_are_other_owners() -> None:
    here = Owner.here()
    row = {**here.columns(), "beat": 0}

    assert not HeartbeatWatch().is_gone(row)
    assert HeartbeatWatch().is_gone({**row, "started": here.started + 1})
    assert start_time(2**22 + 1) is None


def test_remote_owners_expire_without_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {**replace(Owner.here(), host="elsewhere").columns(), "beat": 0}
    watch = HeartbeatWatch(expiry_s=10)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    for beat in range(4):
        assert not watch.is_gone({**row, "beat": beat})
        now += 9.0
        assert not watch.is_gone({**row, "beat": beat})
    now += 1.5
    assert watch.is_gone({**row, "beat": 3})


def test_leases_do_not_depend_on_the_local_clock(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(url) as mine, client(url) as other, mine.lease(["a"]):
        monkeypatch.setattr(time, "time", lambda: 4e9)  # the year 2096
        with pytest.raises(FarmError, match="a is leased"):
            other.acquire(["a"], wait_s=0.3)


def test_lost_leases_are_detected(url: str) -> None:
    with client(url) as mine:
        lease = mine.acquire(["a"])
        assert lease is not None
        assert not lease.lost
        with closing(Store(url)) as store:
            store.work(lambda c: c.execute(sql.delete(LEASES)))

        assert eventually(lambda: lease.lost)


def test_quarantined_boards_are_refused_with_the_reason(url: str) -> None:
    with client(url) as mine, closing(Store(url)) as store:
        quarantine = Quarantine(store)
        quarantine.shut_out("a", "it smells of smoke")
        quarantine.shut_out("a", "another reason")
        with pytest.raises(FarmError, match="a is in quarantine: it smells of smoke"):
            mine.acquire(["a"], wait_s=0)
        quarantine.let_in("a")

        with mine.lease(["a"], wait_s=0) as lease:
            assert lease.board == "a"
        with pytest.raises(FarmError, match="a is not in quarantine"):
            quarantine.let_in("a")
        assert [row["text"] for row in quarantine.diary("a")] == [
            "quarantine: it smells of smoke",
            "quarantine: another reason",
            "released from quarantine",
        ]


def test_locked_databases_are_retried(url: str, tmp_path: Path) -> None:
    with client(url) as mine:
        with mine.lease(["a"]):
            pass
        blocker = sql.create_engine(url).connect()
        blocker.exec_driver_sql("BEGIN EXCLUSIVE")
        timer = threading.Timer(1.0, blocker.rollback)
        start = time.monotonic()
        timer.start()
        with mine.lease(["a"]) as lease:
            assert lease.board == "a"
        assert time.monotonic() - start >= 1.0
        timer.join()
        blocker.close()


def test_error_names_an_unavailable_database(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with (
        closing(Store(f"sqlite:///{tmp_path}/folder", patience_s=0.3)) as store,
        pytest.raises(DatabaseDown, match=r"folder: the database does not answer: unable to open"),
    ):
        store.work(lambda c: None)
