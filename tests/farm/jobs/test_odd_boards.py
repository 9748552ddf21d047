"""A board with nonsense answers is quarantined; the batch continues without it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.farm.boards.board import Board, Local
from pockengine.farm.jobs.batch import JobBatch, QueuedJob
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.quarantine import Quarantine
from pockengine.farm.jobs.run import run_batch
from pockengine.farm.jobs.store import Store
from pockengine.farm.jobs.worker import Site
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.local import LocalTransport
from pockengine.farm.transports.transport import RunResult, Sink, Transport
from pockengine.tests.farm.helpers import script

Answer = Callable[[RunResult], bytes]


class OddTransport(LocalTransport):
    """This machine, with altered output for commands that contain a word."""

    word = ""
    answer: Answer = staticmethod(lambda result: result.stdout)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        result = super().run(argv, cwd=cwd, timeout_s=timeout_s, limits=limits, sink=sink)
        if any(self.word in text for text in argv):
            return replace(result, stdout=self.answer(result))
        return result


class BrokenTransport(OddTransport):
    """A board whose transport raises an unexpected error in our own code."""

    def put(self, *_: object) -> bool:
        raise LookupError("no such thing")


def odd(word: str, answer: bytes) -> type[OddTransport]:
    message = staticmethod(lambda result: answer)
    return type("Odd", (OddTransport,), {"word": word, "answer": message})


CASES = {
    "infinitely many cores": odd("say system", b"system Linux\ncores inf\n"),
    "a clock that is no number": odd("say system", b"clock nan\n"),
    "more memory than there is": odd("say system", b"memory_kb 1e300\n"),
    "no text": odd("say system", b"\xff\xfe\x00\n"),
    "a hash that is none": odd("sha256sum", b"\xff" * 70),
    "an unexpected end": BrokenTransport,
}


@pytest.mark.parametrize("kind", CASES.values(), ids=CASES)
def test_only_the_odd_board_is_quarantined(kind: type[OddTransport], tmp_path: Path) -> None:
    boards = [Board("good", "host", Local()), Board("odd", "host", Local())]
    names = tuple(board.name for board in boards)

    @contextmanager
    def open_board(board: Board) -> Iterator[Transport]:
        chosen = kind if board.name == "odd" else LocalTransport
        with closing(chosen(board.name)) as transport:
            yield transport

    job = Job(script(tmp_path, "echo fine"))
    with closing(Store(f"sqlite:///{tmp_path}/farm.sqlite")) as store:
        owner = Owner.here()
        with closing(Leases(store, owner)) as leases:
            ward = Quarantine(store)
            site = Site(JobBatch(store, "night", owner), leases, ward, tmp_path, open=open_board)
            site.batch.add([QueuedJob("first", job, ("odd",)), QueuedJob("second", job, names)])
            verdicts = {one.name: one.verdict for one in run_batch(site, boards)}

            assert list(ward.reasons()) == ["odd"]
    assert verdicts == {"first": "unrunnable", "second": "passed"}
