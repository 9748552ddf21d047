"""A farm client for tests: a rack's boards, with its own database and logs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pockengine.errors import JobFailed
from pockengine.farm.boards.board import Board
from pockengine.farm.jobs.batch import Claim, JobBatch, JobVerdict, QueuedJob
from pockengine.farm.jobs.health import Needs
from pockengine.farm.jobs.job import Job, JobResult
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.quarantine import Quarantine
from pockengine.farm.jobs.run import run_batch
from pockengine.farm.jobs.store import Store
from pockengine.farm.jobs.worker import Site
from pockengine.tests.farm.helpers import script
from pockengine.tests.farm.rack import Rack

NEEDS = Needs(disk_bytes=8 << 20, memory_bytes=16 << 20)


@contextmanager
def new_site(
    folder: Path, rack: Rack, batch: str = "night", url: str | None = None
) -> Iterator[Site]:
    """Open a client; all clients of a folder share its database."""
    with closing(Store(url or f"sqlite:///{folder}/farm.sqlite")) as store:
        owner = Owner.here()
        with closing(Leases(store, owner)) as leases:
            yield Site(
                JobBatch(store, batch, owner),
                leases,
                Quarantine(store),
                folder / "logs",
                examine=expect_no_garbage,
                needs=NEEDS,
                open=rack.open,
            )


def expect_no_garbage(claim: Claim, result: JobResult) -> None:
    """Fail jobs that print anything but "fine"."""
    if result.run.stdout != b"fine\n":
        raise JobFailed(f"{claim.board}: {claim.name} printed {result.run.stdout[:40]!r}")


def run(site: Site, jobs: Mapping[str, Job], boards: Sequence[Board]) -> dict[str, JobVerdict]:
    """Run jobs on any of the boards; return their verdicts by name."""
    names = tuple(board.name for board in boards)
    site.batch.add([QueuedJob(name, job, names) for name, job in jobs.items()])
    return {verdict.name: verdict for verdict in run_batch(site, boards)}


def job(folder: Path, text: str, **options: Any) -> Job:
    """Return a job that runs this text as a shell script."""
    name = f"{abs(hash(text)):x}.sh"
    return Job(script(folder, text, name), **options)


def fine(folder: Path) -> Job:
    """Return a job that passes."""
    return job(folder, "echo fine")
