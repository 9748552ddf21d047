"""Boards that are unreachable, full or wrong in time, and clients that share them: the outcomes.

No case leaves a job folder, a process or a lease.
"""

import socket
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sql

from pockengine.farm.boards.board import Board
from pockengine.farm.jobs.worker import Site
from pockengine.farm.transports.emulated import Emulation
from pockengine.tests.farm.helpers import image_with_init, needs_qemu
from pockengine.tests.farm.jobs.site import fine, job, new_site, run
from pockengine.tests.farm.rack import GUEST, Rack
from pockengine.tests.farm.ssh_server import new_key

pytestmark = needs_qemu


def test_changed_host_key_quarantines_the_board_immediately(
    rack: Rack, site: Site, tmp_path: Path
) -> None:
    other = new_key(tmp_path / "other")
    line = f"{other.get_name()} {other.get_base64()}"
    rack.tamper["left"] = lambda address: replace(address, host_key=line)

    done = run(site, {"job": fine(tmp_path)}, rack.boards[:1])["job"]

    assert (done.verdict, done.attempts) == ("unrunnable", ())
    assert "left is in quarantine: left at 127.0.0.1" in done.message
    assert "not the pinned" in done.message
    assert len(site.quarantine.diary("left")) == 2


def test_refused_login_quarantines_the_board_and_another_runs_the_job(
    rack: Rack, site: Site, tmp_path: Path
) -> None:
    new_key(tmp_path / "stranger")
    rack.tamper["left"] = lambda address: replace(address, key_file=tmp_path / "stranger")

    done = run(site, {"job": fine(tmp_path)}, rack.boards)["job"]

    assert done.verdict == "passed"
    assert done.attempts == (("right", "passed"),)


def test_silent_boards_are_quarantined_after_three_tries(
    rack: Rack, site: Site, tmp_path: Path
) -> None:
    rack.login_timeout_s = 1.0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        rack.tamper["left"] = lambda address: replace(address, port=port)
        done = run(site, {"job": fine(tmp_path)}, rack.boards[:1])["job"]

    assert done.verdict == "unrunnable"
    assert site.quarantine.reasons()["left"][0].count("does not answer") == 3


def test_boards_that_never_boot_are_quarantined_with_the_reason(
    rack: Rack, site: Site, tmp_path: Path
) -> None:
    image = image_with_init(tmp_path, "#!/bin/busybox sh\nexec /bin/busybox sleep 1000\n")
    left = rack.boards[0]

    def never(board: Board):  # type: ignore[no-untyped-def]
        supply = Emulation(board.name, GUEST, image, boot_timeout_s=1.0)
        with closing(supply):
            supply.power("on")

    site.open = never
    done = run(site, {"job": fine(tmp_path)}, [left])["job"]

    assert done.verdict == "unrunnable"
    assert site.quarantine.reasons()["left"][0].count("did not answer within 1 s") == 3


def test_full_disks_are_board_faults(rack: Rack, site: Site, tmp_path: Path) -> None:
    with rack.open(rack.boards[0]) as transport:
        transport.run(["sh", "-c", "cat /dev/zero > /jobs/filler"])

    done = run(site, {"job": fine(tmp_path)}, rack.boards[:1])["job"]

    assert done.verdict == "passed"
    texts = [row["text"] for row in site.quarantine.diary("left")]
    assert "bytes of disk are free" in texts[0]
    assert texts[1] == "power cycle"


def test_clock_jumps_are_found_and_change_no_verdict(
    rack: Rack, site: Site, tmp_path: Path
) -> None:
    left = rack.boards[:1]
    jump = job(tmp_path, "date -s @2209000000 > /dev/null; sleep 1; echo fine", time_limit_s=120.0)
    assert run(site, {"jump": jump}, left)["jump"].verdict == "passed"

    with new_site(tmp_path, rack, "next night") as later:
        done = run(later, {"job": fine(tmp_path)}, left)["job"]

    assert done.verdict == "passed"
    assert "its clock is" in site.quarantine.diary("left")[0]["text"]


def test_two_clients_take_turns_on_the_last_board(rack: Rack, site: Site, tmp_path: Path) -> None:
    alone = "mkdir /jobs/alone || exit 1; sleep 0.3; rmdir /jobs/alone; echo fine"
    results: list[str | None] = []

    def other_client() -> None:
        with new_site(tmp_path, rack, "other") as other:
            done = run(other, {f"o{i}": job(tmp_path, alone) for i in range(2)}, rack.boards[:1])
            results.extend(one.verdict for one in done.values())

    thread = threading.Thread(target=other_client)
    thread.start()
    done = run(site, {f"m{i}": job(tmp_path, alone) for i in range(2)}, rack.boards[:1])
    thread.join(120)

    assert results == ["passed"] * 2
    assert [one.verdict for one in done.values()] == ["passed"] * 2


def test_temporarily_locked_database_loses_nothing(rack: Rack, site: Site, tmp_path: Path) -> None:
    blocker = sql.create_engine(f"sqlite:///{tmp_path}/farm.sqlite").connect()
    jobs = {f"job{i}": fine(tmp_path) for i in range(4)}

    def block() -> None:
        blocker.exec_driver_sql("BEGIN EXCLUSIVE")
        threading.Timer(2.0, blocker.rollback).start()

    site.batch.add([])
    threading.Timer(1.0, block).start()
    done = run(site, jobs, rack.boards)

    assert [(one.verdict, len(one.attempts)) for one in done.values()] == [("passed", 1)] * 4
