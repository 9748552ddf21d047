"""Faults of boards, jobs and clients on emulated boards, and their outcomes.

A board's fault never becomes a job's verdict, and a job's fault never counts against a board. No
case leaves a job folder, a process or a lease.
"""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from pockengine.farm.boards.board import Board
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.store import ATTEMPTS
from pockengine.farm.jobs.worker import Site
from pockengine.farm.transports.emulated import Emulation
from pockengine.farm.transports.limits import CommandLimits
from pockengine.farm.transports.ssh import SshAddress
from pockengine.tests.farm.helpers import image_with_init, needs_qemu, script
from pockengine.tests.farm.jobs.site import new_site, run
from pockengine.tests.farm.rack import GUEST, Cutter, Rack
from pockengine.tests.farm.ssh_server import new_key

pytestmark = needs_qemu
BIG = 400_000  # bytes: more than all other traffic on the wire


@pytest.fixture(name="rack", scope="module")
def a_rack() -> Iterator[Rack]:
    with Rack(["left", "right"]) as rack:
        yield rack


@pytest.fixture(name="site")
def a_client(rack: Rack, tmp_path: Path) -> Iterator[Site]:
    rack.reset()
    with new_site(tmp_path, rack) as site:
        yield site
        assert isinstance(site.leases, Leases)
        assert site.leases.leased() == []
    rack.reset()
    for board in rack.boards:
        with rack.open(board) as transport:
            left = transport.run(["sh", "-c", "ls /jobs/jobs; ls -l /proc/[0-9]*/cwd | grep jobs/"])
            assert (board.name, left.stdout) == (board.name, b"")


def job(folder: Path, text: str, **options: object) -> Job:
    name = f"{abs(hash(text)):x}.sh"
    return Job(script(folder, text, name), **options)


def fine(folder: Path) -> Job:
    return job(folder, "echo fine")


def job_failing_on_left(rack: Rack, folder: Path, trouble: str) -> Job:
    """Return a job that fails on the left board and passes elsewhere."""
    with rack.open(rack.boards[0]) as transport:
        transport.run(["touch", "/jobs/trouble"])
    return job(folder, f"[ -e /jobs/trouble ] && {{ {trouble}; sleep 60; }}; echo fine")


def test_program_faults_are_verdicts_and_are_not_retried(
    rack: Rack, site: Site, tmp_path: Path
) -> None:
    jobs = {
        "fine": fine(tmp_path),
        "exits": job(tmp_path, "exit 3"),
        "segfaults": job(tmp_path, "kill -SEGV $$"),
        "hangs": job(tmp_path, "sleep 4321", time_limit_s=2.0),
        "leaves a child": job(tmp_path, "setsid sleep 4322 >/dev/null 2>&1 & echo fine"),
        "floods": job(tmp_path, "yes flood", limits=CommandLimits(1 << 20, within_free=True)),
        "prints garbage": job(tmp_path, "echo garbage"),
        "takes all memory": job(tmp_path, "exec tail -c 2000000000 /dev/zero"),
        "fills the disk": job(tmp_path, "cat /dev/zero > big"),
        "writes nothing": job(tmp_path, "echo fine", outputs=("result",)),
    }

    done = run(site, jobs, rack.boards)

    assert {name for name, one in done.items() if one.verdict == "passed"} == {
        "fine",
        "leaves a child",
    }
    assert {one.verdict for one in done.values()} == {"passed", "failed"}
    assert {len(one.attempts) for one in done.values()} == {1}
    assert "SIGSEGV" in done["segfaults"].message
    assert "did not end within 2 s" in done["hangs"].message
    assert "printed more than" in done["floods"].message
    assert "printed b'garbage" in done["prints garbage"].message
    assert site.quarantine.reasons() == {}


@pytest.mark.parametrize(
    ("trouble", "console"),
    [
        ("reboot -f", ""),
        ("echo c > /proc/sysrq-trigger", "Kernel panic"),
    ],
    ids=["reboot", "panic"],
)
def test_jobs_survive_a_board_that_goes_down(
    rack: Rack, site: Site, tmp_path: Path, trouble: str, console: str
) -> None:
    done = run_left_first(rack, site, job_failing_on_left(rack, tmp_path, trouble))

    assert done == ("passed", ["left infrastructure", "right passed"])
    log = tmp_path / "logs" / "job.1"
    assert console in (log / "console.log").read_text()
    assert '"do": "run"' in (log / "ssh.jsonl").read_text()


def run_left_first(rack: Rack, site: Site, one: Job) -> tuple[str | None, list[str]]:
    """Run a job on both boards; the right board joins after the left board's first attempt."""
    left, right = rack.boards
    tried = threading.Event()

    def tries() -> int:
        query = sql.select(sql.func.count()).select_from(ATTEMPTS)
        return int(site.batch._store.work(lambda c: c.execute(query).scalar_one()))

    really_open = site.open

    def open_later(board: Board):  # type: ignore[no-untyped-def]
        while board is right and tries() == 0 and not tried.wait(0.05):
            if site.shut_out(left):
                break
        return really_open(board)

    site.open = open_later
    try:
        done = run(site, {"job": one}, [left, right])["job"]
    finally:
        site.open = really_open
    return done.verdict, [f"{board} {outcome}" for board, outcome in done.attempts]


@pytest.mark.parametrize(
    ("up", "down", "text", "step"),
    [
        (BIG // 2, None, "echo fine", "put"),
        (None, BIG // 8, "head -c 100000 /dev/zero | tr '\\0' x >&2; sleep 4323", "run"),
        (None, BIG // 8, "head -c 100000 /dev/urandom > out; echo fine", "get"),
    ],
    ids=["upload", "run", "download"],
)
def test_jobs_survive_a_cut_connection(
    rack: Rack, site: Site, tmp_path: Path, up: int | None, down: int | None, text: str, step: str
) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(BIG))
    text = f"[ -e /jobs/trouble ] || {{ head -c 9 /dev/zero > out; echo fine; exit; }}; {text}"
    job_failing_on_left(rack, tmp_path, "true")
    one = job(tmp_path, text, inputs={"data": data}, outputs=("out",), time_limit_s=120.0)
    cutters: list[Cutter] = []

    def cut(address: SshAddress) -> SshAddress:
        cutters.append(Cutter(address.port, up, down if not cutters else None))
        return replace(address, port=cutters[-1].port)

    rack.tamper["left"] = cut
    try:
        done = run_left_first(rack, site, one)
    finally:
        for cutter in cutters:
            cutter.close()

    assert cutters[0].cut
    did = [
        json.loads(line) for line in (tmp_path / "logs/job.1/ssh.jsonl").read_text().splitlines()
    ]
    assert next(one["do"] for one in did if "error" in one) == step
    assert done == ("passed", ["left infrastructure", "right passed"])
    assert (tmp_path / "logs" / "job.2" / "out").stat().st_size == 9


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
