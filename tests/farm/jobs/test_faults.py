"""Faults of jobs and connections on emulated boards, and their outcomes.

A board's fault never becomes a job's verdict, and a job's fault never counts against a board. No
case leaves a job folder, a process or a lease.
"""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from pockengine.farm.boards.board import Board
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.store import ATTEMPTS
from pockengine.farm.jobs.worker import Site
from pockengine.farm.transports.limits import CommandLimits
from pockengine.farm.transports.ssh import SshAddress
from pockengine.tests.farm.helpers import needs_qemu
from pockengine.tests.farm.jobs.site import fine, job, run
from pockengine.tests.farm.rack import Cutter, Rack

pytestmark = needs_qemu
BIG = 400_000  # bytes: more than all other traffic on the wire


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
