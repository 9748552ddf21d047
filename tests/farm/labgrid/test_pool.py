"""Boards from a real coordinator and exporter; two clients compete for emulated boards."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from pockengine.errors import FarmError
from pockengine.farm.boards.board import AdbPhone, Board, Remote
from pockengine.farm.boards.connect import connect
from pockengine.farm.images.image import ensure_image
from pockengine.farm.jobs.batch import JobBatch, QueuedJob
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.quarantine import Quarantine
from pockengine.farm.jobs.run import run_batch
from pockengine.farm.jobs.store import Store
from pockengine.farm.jobs.worker import Site
from pockengine.farm.labgrid import pool as pool_module
from pockengine.farm.labgrid.pool import LabgridPool
from pockengine.farm.labgrid.session import coordinator_of
from pockengine.farm.transports.emulated import running, wait_for_ssh
from pockengine.tests.farm.helpers import eventually, needs_qemu, script
from pockengine.tests.farm.jobs.site import NEEDS, expect_no_garbage
from pockengine.tests.farm.labgrid.lab import lab
from pockengine.tests.farm.rack import GUEST

# Acquires a place, prints a line, and keeps it until it is killed.
HOLDER = """
import sys, time
from pockengine.farm.labgrid import pool as pool_module
from pockengine.farm.labgrid.pool import LabgridPool
print(LabgridPool(sys.argv[1]).acquire([sys.argv[2]]).board, flush=True)
time.sleep(60)
"""


@pytest.fixture(name="url", scope="module")
def a_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start two emulated boards behind a coordinator."""
    if not needs_qemu.args[0]:
        with ExitStack() as stack:
            machines = {
                name: stack.enter_context(running(name, GUEST, ensure_image()))
                for name in ("left", "right")
            }
            for machine in machines.values():
                wait_for_ssh(machine, 240)
            ports = {name: machine.port for name, machine in machines.items()}
            folder = tmp_path_factory.mktemp("lab")
            yield f"labgrid://{stack.enter_context(lab(folder, ports))}"


def inventory() -> list[Board]:
    """Return the user's boards with their keys; labgrid's addresses replace theirs."""
    keys = ensure_image().keys
    place = Remote("nowhere", "root", str(keys.client), keys.host_public, workdir="/jobs")
    return [Board(name, "rpi4", place) for name in ("left", "right", "elsewhere")]


@needs_qemu
def test_inventory_places_are_boards_at_labgrid_addresses(url: str) -> None:
    with closing(LabgridPool(url)) as pool:
        boards = pool.boards(inventory())
        with connect(boards[0]) as transport:
            assert transport.run(["uname", "-m"]).stdout == b"aarch64\n"

        assert [board.name for board in boards] == ["left", "right"]
        with pytest.raises(FarmError, match="its places: left, right; add one with: farm add"):
            pool.boards([])


@needs_qemu
def test_a_place_belongs_to_one_client_at_a_time(url: str) -> None:
    with closing(LabgridPool(url)) as mine, closing(LabgridPool(url)) as theirs:
        lease = mine.acquire(["left"])
        assert lease is not None
        assert not lease.lost
        with pytest.raises(FarmError, match=r"no board within 1 s: left is acquired by .*pockeng"):
            theirs.acquire(["left"], wait_s=1)
        assert theirs.acquire(["left"], stop=lambda: True) is None
        mine.release(lease)

        other = theirs.acquire(["left"], wait_s=30)

        assert other is not None
        theirs.release(other)


@needs_qemu
def test_place_of_a_killed_client_is_released(url: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, url, "right"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "right\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)

    with closing(LabgridPool(url)) as pool:
        lease = pool.acquire(["right"], wait_s=60)
        assert lease is not None
        pool.release(lease)


@needs_qemu
def test_two_clients_share_two_boards(url: str, tmp_path: Path) -> None:
    alone = "mkdir /jobs/alone || exit 1; sleep 0.2; rmdir /jobs/alone; echo fine"
    job = Job(script(tmp_path, alone))
    verdicts: dict[str, list[str | None]] = {}

    def client(name: str) -> None:
        owner = Owner.here(name)
        with (
            closing(Store(f"sqlite:///{tmp_path}/{name}.sqlite")) as store,
            closing(LabgridPool(url, owner)) as pool,
        ):
            boards = pool.boards(inventory())
            site = Site(
                JobBatch(store, name, owner),
                pool,
                Quarantine(store),
                tmp_path / name,
                examine=expect_no_garbage,
                needs=NEEDS,
            )
            names = tuple(board.name for board in boards)
            site.batch.add([QueuedJob(f"job{i}", job, names) for i in range(4)])
            verdicts[name] = [one.verdict for one in run_batch(site, boards)]

    threads = [threading.Thread(target=client, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)

    assert verdicts == {"one": ["passed"] * 4, "two": ["passed"] * 4}
    with closing(LabgridPool(url)) as pool:
        assert eventually(lambda: not any(p.acquired for p in pool.session.places.values()))


@pytest.mark.parametrize("url", ["http://x", "labgrid://", "labgrid://a:b@c", "labgrid://h:99999"])
def test_invalid_pools_are_refused(url: str) -> None:
    with pytest.raises(FarmError, match="not a pool"):
        coordinator_of(url)


def test_error_names_a_missing_coordinator() -> None:
    with pytest.raises(FarmError, match=r"127.0.0.1:1"):
        LabgridPool("labgrid://127.0.0.1:1")


class Coordinator:
    """A fake session whose coordinator returns the test's answers."""

    name = "host/me"
    messages = MagicMock()

    def __init__(self, service: dict[str, object], token: str = "TOKEN") -> None:
        self.places = {"left": None}
        self.service = lambda place: service
        self.call = lambda method, request: SimpleNamespace(
            reservation=SimpleNamespace(token=token, state=pool_module.ALLOCATED)
        )


def pool_of(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> LabgridPool:
    monkeypatch.setattr(pool_module, "LabgridSession", lambda *_: coordinator)
    monkeypatch.setattr(pool_module, "Guard", MagicMock())
    return LabgridPool("labgrid://lab")


def placed(service: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> Remote:
    board = Board("left", "rpi4", Remote("nowhere", "root", "key", "ssh-ed25519 AAAA"))
    (found,) = pool_of(Coordinator(service), monkeypatch).boards([board])
    assert isinstance(found.place, Remote)
    return found.place


@pytest.mark.parametrize(
    "service",
    [
        {},
        {"port": 22},
        *({"address": host} for host in ("", "a b", "-oX", "a\nb", "a\0", None, "x" * 999, "u@h")),
        *({"address": "h", "port": port} for port in (0, -1, 65536, "", "x", 1.5, None, True)),
    ],
)
def test_error_names_an_invalid_address(
    service: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FarmError, match="left: labgrid says that it is at"):
        placed(service, monkeypatch)


def test_addresses_are_read_as_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert placed({"address": "board-1.lab"}, monkeypatch).port == 22
    assert placed({"address": "fe80::1%eth0", "port": "2222"}, monkeypatch).port == 2222


@pytest.mark.parametrize(
    ("service", "serial"),
    [
        ({"address": "lab"}, "lab:5555"),
        ({"address": "10.0.0.7", "port": "6000"}, "10.0.0.7:6000"),
        ({"address": "fe80::1"}, "[fe80::1]:5555"),
    ],
)
def test_phones_are_reached_at_the_address_of_their_place(
    service: dict[str, object], serial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board("left", "phone-arm64", AdbPhone("at-home", "/data/local/tmp/mine"))
    (found,) = pool_of(Coordinator(service), monkeypatch).boards([board])
    assert found.place == AdbPhone(serial, "/data/local/tmp/mine")


@pytest.mark.parametrize("token", ["", "a b", "x\n-y", "x" * 999])
def test_invalid_reservation_tokens_are_refused(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(Coordinator({}, token), monkeypatch)
    with pytest.raises(FarmError, match="calls a reservation"):
        pool.acquire(["left"])
