"""Worker of one board: lease, connect, check health, run jobs, recover, or give up.

A fault of the program is the job's verdict. After a fault of the board, it is power-cycled, checked
again, and quarantined with the reasons if the check fails.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pockengine.devices import load_device
from pockengine.errors import BoardRefused, DatabaseDown, FarmError, JobFailed
from pockengine.farm.boards.board import Board
from pockengine.farm.boards.connect import connect, has_power, opening, switch
from pockengine.farm.jobs.batch import Claim, JobBatch, Outcome
from pockengine.farm.jobs.health import Needs, require_health
from pockengine.farm.jobs.job import JobResult, clean_board, run_job
from pockengine.farm.jobs.job_output import job_output
from pockengine.farm.jobs.leases import LeasedBoard, Leasing
from pockengine.farm.jobs.quarantine import Quarantine
from pockengine.farm.jobs.run_log import logged
from pockengine.farm.transports.transport import Transport

POLL_S = 0.1
MOST_FAILURES = 3  # in a row, without a completed job in between

# Checks a program's output; JobFailed if it is wrong.
Examine = Callable[[Claim, JobResult], None]


@dataclass
class Site:
    """State shared by the workers of one client."""

    batch: JobBatch
    leases: Leasing[Any]
    quarantine: Quarantine
    logs: Path
    examine: Examine | None = None
    priority: int = 0
    needs: Needs = field(default_factory=Needs)
    open: Callable[[Board], AbstractContextManager[Transport]] = connect
    tell: Callable[[str], None] = lambda _: None  # reports each board's tasks and each job's output
    doing: dict[str, tuple[str, float]] = field(default_factory=dict)  # task, start by board
    active: set[str] = field(default_factory=set)  # boards that take jobs
    stop: threading.Event = field(default_factory=threading.Event)
    interrupted: threading.Event = field(default_factory=threading.Event)  # by Ctrl-C
    connected: dict[str, Transport] = field(default_factory=dict)  # by board

    def has_work(self) -> bool:
        """Whether any job is open."""
        return not self.stop.is_set() and self.batch.open_jobs() > 0

    def say(self, board: str, text: str) -> None:
        """Record and report a board's current task."""
        self.doing[board] = (text, time.monotonic())
        self.tell(f"{board}: {text}")

    def shut_out(self, board: Board) -> bool:
        """Whether the board is in quarantine."""
        return board.name in self.quarantine.reasons()


class BoardTrouble(FarmError):
    """An attempt that failed because of the board."""


def work(site: Site, board: Board) -> str:
    """Run the batch's jobs on a board until none is open.

    Return the reason if the board was given up, else "".
    """
    failures: list[str] = []
    while site.has_work():
        site.say(board.name, "waiting for its lease")
        lease = site.leases.acquire(
            [board.name], site.priority, stop=lambda: not site.has_work() or site.shut_out(board)
        )
        if lease is None:
            break
        try:
            while site.has_work() and not lease.lost and not site.shut_out(board):
                _try_to_serve(site, board, lease, failures)
        finally:
            site.leases.release(lease)
    reason, _ = site.quarantine.reasons().get(board.name, ("", ""))
    return reason


def _try_to_serve(site: Site, board: Board, lease: LeasedBoard, failures: list[str]) -> None:
    """Serve until the jobs or the lease end; append board failures to `failures`."""
    try:
        if failures:
            _recover(site, board)
        _serve(site, board, lease, failures)
    except DatabaseDown:
        raise
    except FarmError as error:
        if site.interrupted.is_set():  # the job was killed
            return
        failures.append(str(error).splitlines()[0])
        site.say(board.name, failures[-1])
        site.quarantine.note(board.name, failures[-1])
        if isinstance(error, BoardRefused) or len(failures) >= MOST_FAILURES:
            site.quarantine.shut_out(board.name, "; then ".join(failures))


def _recover(site: Site, board: Board) -> None:
    """Power-cycle the board, if possible; an emulated one reboots by itself."""
    task = "power cycle" if board.emulated or has_power(board) else "connects again"
    site.quarantine.note(board.name, task)
    site.say(board.name, task)
    switch(board, "cycle")


def _serve(site: Site, board: Board, lease: LeasedBoard, failures: list[str]) -> None:
    """Run jobs over one connection; FarmError for a board failure."""
    device = load_device(board.device)
    site.say(board.name, opening(board))
    with site.open(board) as transport, _connected(site, board, transport):
        site.say(board.name, "examining its health")
        with (
            _readable(board.name),
            logged(transport, site.logs / "health" / board.name) as examined,
        ):
            clean_board(examined)
            require_health(examined, device, site.needs, partial(site.say, board.name))
        while site.has_work() and not lease.lost:
            claim = site.batch.claim(board.name, site.active)
            if claim is None:  # remaining jobs run elsewhere, and may be requeued
                site.doing.pop(board.name, None)
                time.sleep(POLL_S)
                continue
            _attempt(site, transport, claim)
            failures.clear()


@contextmanager
def _connected(site: Site, board: Board, transport: Transport) -> Iterator[None]:
    """Register an open connection, by which an interrupted client ends the board's job."""
    site.connected[board.name] = transport
    try:
        yield
    finally:
        del site.connected[board.name]


def _attempt(site: Site, transport: Transport, claim: Claim) -> None:
    """Run one job and store its result; BoardTrouble if the board was at fault."""
    folder = site.logs / f"{claim.name}.{claim.attempt}"
    outcome: Outcome = "passed"
    message = ""
    site.say(claim.board, f"runs {claim.name}, attempt {claim.attempt}, logs in {folder}")
    try:
        with logged(transport, folder) as board:
            with _readable(claim.board), job_output(claim.name, folder, site.tell) as sink:
                result = run_job(board, claim.job, folder, sink=sink)
            if site.examine is not None:
                site.examine(claim, result)
    except DatabaseDown:
        raise
    except JobFailed as error:
        outcome, message = "failed", str(error)
    except FarmError as error:
        outcome, message = "infrastructure", str(error)
    if site.interrupted.is_set():  # the job was killed: it stays open
        return
    site.batch.finish(claim, outcome, message, folder)
    if outcome == "infrastructure":
        raise BoardTrouble(message)


@contextmanager
def _readable(board: str) -> Iterator[None]:
    """Turn an unreadable reply into a board failure: it must not end the batch."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, EOFError) as error:
        raise FarmError(f"{board}: gave an answer that cannot be read: {error!r}") from error
