"""Run many jobs on emulated boards that lose power at random, and check every verdict.

    bazel run //tests/farm/jobs:soak -- --jobs 200 --boards 4

Run it manually: it takes minutes. test_soak.py runs a few jobs on two boards.
"""

import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import sqlalchemy as sql

from pockengine.farm.jobs.batch import JobVerdict
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.store import ATTEMPTS, JOBS
from pockengine.tests.farm.helpers import script
from pockengine.tests.farm.jobs.site import new_site, run
from pockengine.tests.farm.rack import Rack

EVERY_OTHER = 5  # one job in five should fail


@dataclass(frozen=True)
class Soak:
    """Result: verdicts by name, number of boards killed, duration."""

    verdicts: dict[str, JobVerdict]
    killed: int
    seconds: float

    def wrong(self) -> list[str]:
        """Return the jobs with a wrong verdict."""
        return [
            f"{name}: {one.verdict}: {one.message}"
            for name, one in self.verdicts.items()
            if one.verdict != expected(int(name.removeprefix("job")))
        ]

    def attempts(self) -> Counter[str]:
        """Count the outcomes of all attempts."""
        return Counter(how for one in self.verdicts.values() for _, how in one.attempts)


def expected(number: int) -> str:
    """Return a job's expected verdict."""
    return "failed" if number % EVERY_OTHER == 0 else "passed"


def soak(folder: Path, jobs: int, boards: int, kills: int, seed: int = 0) -> Soak:
    """Run jobs and kill `kills` boards meanwhile, each at a random moment after a verdict."""
    good = Job(script(folder, "sleep 0.2; echo fine", "good.sh"))
    bad = Job(script(folder, "sleep 0.2; exit 1", "bad.sh"))
    work = {f"job{i}": bad if expected(i) == "failed" else good for i in range(jobs)}
    random_ = random.Random(seed)
    killed = 0
    start = time.monotonic()
    with (
        Rack([f"board{i}" for i in range(boards)]) as rack,
        new_site(folder, rack) as site,
    ):
        over = threading.Event()

        def kill() -> None:
            nonlocal killed
            while killed < kills and not over.is_set():
                done = jobs - site.batch.open_jobs()
                if done * (kills + 1) >= (killed + 1) * jobs:  # spread over the whole run
                    time.sleep(random_.uniform(0.0, 1.0))
                    rack.kill(random_.choice(rack.boards).name)
                    killed += 1
                time.sleep(0.1)

        site.batch.add([])
        killer = threading.Thread(target=kill)
        threading.Timer(1.0, killer.start).start()
        verdicts = run(site, work, rack.boards)
        over.set()
        stored = site.batch._store.work(_stored_verdicts)
        assert stored == {name: 1 for name in work}, "a verdict is missing or was stored twice"
        assert isinstance(site.leases, Leases)
        assert site.leases.leased() == [], "a lease was not released"
    return Soak(verdicts, killed, time.monotonic() - start)


def _stored_verdicts(connection: sql.Connection) -> dict[str, int]:
    """Return the number of attempts with a verdict, by job."""
    query = sql.select(JOBS.c.name).join(ATTEMPTS, ATTEMPTS.c.job == JOBS.c.id)
    names = connection.execute(query.where(ATTEMPTS.c.outcome.in_(["passed", "failed"])))
    return dict(Counter(names.scalars()))


@click.command()
@click.option("--jobs", default=200, show_default=True)
@click.option("--boards", default=4, show_default=True)
@click.option("--kills", default=12, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(jobs: int, boards: int, kills: int, seed: int) -> None:
    """Run the jobs and print the result."""
    folder = Path(tempfile.mkdtemp(prefix="pockengine-soak-"))
    try:
        result = soak(folder, jobs, boards, kills, seed)
    finally:
        shutil.rmtree(folder)
    click.echo(
        f"{jobs} jobs on {boards} boards, {result.killed} killed: {result.seconds:.0f} s, "
        f"attempts {dict(result.attempts())}, {len(result.wrong())} wrong verdicts"
    )
    for line in result.wrong():
        click.echo(line)
    raise SystemExit(1 if result.wrong() else 0)


if __name__ == "__main__":
    main()
