"""Jobs in the database: claims, retries, verdicts, and clients that die in between."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.jobs.batch import (
    MOST_ATTEMPTS,
    JobBatch,
    QueuedJob,
    job_from_json,
    job_to_json,
)
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.store import Store
from pockengine.farm.transports.limits import CommandLimits

LOG = Path("/log")

# Claims a job and dies immediately.
CLAIMER = """
import os, sys
from pockengine.farm.jobs.batch import JobBatch
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.store import Store
print(JobBatch(Store(sys.argv[1]), "night", Owner.here()).claim("a", {"a"}).name, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(name="store")
def an_open_store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(f"sqlite:///{tmp_path}/farm.sqlite")) as store:
        yield store


def batch(store: Store, count: int = 1, boards: tuple[str, ...] = ("a", "b")) -> JobBatch:
    jobs = JobBatch(store, "night", Owner.here())
    jobs.add([QueuedJob(f"job{i}", Job(Path("/bin/true")), boards) for i in range(count)])
    return jobs


def test_jobs_are_claimed_once_by_priority(store: Store) -> None:
    jobs = batch(store, 2)
    jobs.add([QueuedJob("urgent", Job(Path("/bin/true")), ("a",), priority=5)])

    names = [claim.name if (claim := jobs.claim("a", {"a"})) else None for _ in range(4)]

    assert names == ["urgent", "job0", "job1", None]


def test_failed_jobs_are_not_retried(store: Store) -> None:
    jobs = batch(store)
    claim = jobs.claim("a", {"a", "b"})
    assert claim is not None

    assert jobs.finish(claim, "failed", "exit status 1", LOG)

    assert jobs.claim("b", {"a", "b"}) is None
    assert jobs.open_jobs() == 0
    (verdict,) = jobs.verdicts()
    assert (verdict.verdict, verdict.attempts) == ("failed", (("a", "failed"),))


def test_jobs_of_a_failed_board_move_to_another(store: Store) -> None:
    jobs = batch(store)
    claim = jobs.claim("a", {"a", "b"})
    assert claim is not None
    jobs.finish(claim, "infrastructure", "connection lost", LOG)

    assert jobs.claim("a", {"a", "b"}) is None
    again = jobs.claim("b", {"a", "b"})

    assert again is not None
    assert jobs.finish(again, "passed", "", LOG)
    (verdict,) = jobs.verdicts()
    assert verdict.verdict == "passed"
    assert verdict.attempts == (("a", "infrastructure"), ("b", "passed"))


def test_last_board_retries_until_the_job_is_unrunnable(store: Store) -> None:
    jobs = batch(store)
    for _ in range(MOST_ATTEMPTS):
        claim = jobs.claim("a", {"a"})
        assert claim is not None
        jobs.finish(claim, "infrastructure", "the board rebooted", LOG)

    assert jobs.claim("a", {"a"}) is None
    (verdict,) = jobs.verdicts()
    assert verdict.verdict == "unrunnable"
    assert f"{MOST_ATTEMPTS} attempts failed" in verdict.message
    assert "the board rebooted" in verdict.message


def test_jobs_without_a_board_are_unrunnable(store: Store) -> None:
    jobs = batch(store, boards=("a",))

    jobs.give_up({"a"}, "unused")
    assert jobs.open_jobs() == 1
    jobs.give_up({"b"}, "a is in quarantine: smoke")

    assert jobs.verdicts()[0].message == "a is in quarantine: smoke"


def test_jobs_of_a_killed_client_are_queued_again(store: Store) -> None:
    jobs = batch(store)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CLAIMER, str(store.url)]
    killed = subprocess.run(command, stdout=subprocess.PIPE, env=environment, timeout=60)
    assert killed.stdout == b"job0\n"

    claim = jobs.claim("b", {"a", "b"})

    assert claim is not None
    assert claim.attempt == 2
    jobs.finish(claim, "passed", "", LOG)
    assert jobs.verdicts()[0].attempts == (("a", "infrastructure"), ("b", "passed"))


def test_late_results_of_a_reassigned_job_are_not_stored(store: Store) -> None:
    jobs = batch(store)
    claim = jobs.claim("a", {"a", "b"})
    assert claim is not None
    assert jobs.finish(claim, "infrastructure", "taken away", LOG)
    other = jobs.claim("b", {"a", "b"})
    assert other is not None

    assert not jobs.finish(claim, "passed", "", Path("/late"))

    assert jobs.verdicts()[0].verdict is None


def test_storing_is_idempotent(store: Store) -> None:
    jobs = batch(store)
    claim = jobs.claim("a", {"a"})
    assert claim is not None

    assert [jobs.finish(claim, "passed", "", LOG) for _ in range(2)] == [True, True]
    assert jobs.verdicts()[0].attempts == (("a", "passed"),)


def test_batches_resume(store: Store) -> None:
    first = batch(store, 3)
    claim = first.claim("a", {"a"})
    assert claim is not None
    first.finish(claim, "passed", "", LOG)

    again = batch(store, 3)

    assert again.open_jobs() == 2
    assert len(again.verdicts()) == 3


@pytest.mark.parametrize("name", ["", "../../x", "a/b", ".hidden", "a ", "[red]", "x" * 101])
def test_names_that_cannot_be_folders_are_refused(store: Store, name: str) -> None:
    with pytest.raises(FarmError, match=r"cannot name a job"):
        QueuedJob(name, Job(Path("/bin/true")), ("a",))
    with pytest.raises(FarmError, match=r"cannot name a batch"):
        JobBatch(store, name, Owner.here())


def test_jobs_round_trip() -> None:
    how = ("out",), 3.5, CommandLimits(memory_bytes=5), {"libx.so": Path("/x")}
    job = Job(Path("/p"), ("a b", "$x"), {"in": Path("/i")}, *how)

    assert job_from_json(job_to_json(job)) == job
