"""Run a batch on several boards, one thread per board, until every job has a verdict."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from pockengine.errors import PockEngineError
from pockengine.farm.boards.board import Board
from pockengine.farm.jobs.batch import JobVerdict
from pockengine.farm.jobs.job import clean_board
from pockengine.farm.jobs.worker import POLL_S, Site, work

REPORT_S = 1.0
LEAVE_S = 20.0


def run_batch(
    site: Site, boards: Sequence[Board], report: Callable[[list[JobVerdict]], None] | None = None
) -> list[JobVerdict]:
    """Run all open jobs of the site's batch; return their verdicts.

    `report` is called with the state of all jobs about every second. Jobs that no remaining board
    can run become unrunnable, with the boards' reasons. Any other error, such as a lost database,
    stops the workers after their current job and is raised; Ctrl-C kills the jobs. Both can resume.
    """
    site.active = {board.name for board in boards}
    reasons: dict[str, str] = {}
    errors: list[BaseException] = []

    def worker(board: Board) -> None:
        try:
            reasons[board.name] = work(site, board)
        except BaseException as error:
            errors.append(error)
            site.stop.set()
        finally:
            site.active.discard(board.name)
            site.doing.pop(board.name, None)

    # QEMU is killed when the thread that started it ends, so each board has one thread throughout.
    threads = [threading.Thread(target=worker, args=(board,), daemon=True) for board in boards]
    for thread in threads:
        thread.start()
    due = _every(REPORT_S)
    try:
        for _ in _while_alive(threads, 0.2):
            _give_up(site, reasons)
            if report is not None and next(due):
                report(site.batch.verdicts())
    except BaseException as error:
        _stop(site, error)
        raise
    if errors:
        raise errors[0]
    _give_up(site, reasons)
    return site.batch.verdicts()


def _stop(site: Site, error: BaseException) -> None:
    """Stop the workers; on Ctrl-C kill their jobs, and wait up to LEAVE_S until they have ended.

    An interrupted `Thread.join` may take a thread for ended: `active` has those that run.
    """
    site.stop.set()
    if isinstance(error, Exception):
        return
    site.interrupted.set()
    deadline = time.monotonic() + LEAVE_S
    while site.active and time.monotonic() < deadline:
        for transport in list(site.connected.values()):
            with suppress(PockEngineError, OSError):  # it may be closed by now
                clean_board(transport)
        time.sleep(POLL_S)


def _while_alive(threads: Sequence[threading.Thread], seconds: float) -> Iterator[None]:
    """Yield periodically until all threads have ended."""
    for thread in threads:
        while thread.is_alive():
            thread.join(seconds)
            yield


def _every(seconds: float) -> Iterator[bool]:
    """Yield whether the period has passed since the last True; True at first."""
    last = -math.inf
    while True:
        due = time.monotonic() - last >= seconds
        last = time.monotonic() if due else last
        yield due


def _give_up(site: Site, reasons: dict[str, str]) -> None:
    """Mark jobs unrunnable if all their boards were given up, so that no client waits for them."""
    lost = {board: reason for board, reason in dict(reasons).items() if reason}
    if lost:
        text = "; ".join(f"{board} is in quarantine: {reason}" for board, reason in lost.items())
        site.batch.give_up(set(site.active), f"no board is left: {text}")
