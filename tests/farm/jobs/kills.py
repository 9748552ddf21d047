"""Kill clients of the farm at random moments: no record or board may be lost.

    bazel run //tests/farm/jobs:kills -- --kills 1000

test_kills.py runs a few kills.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click

from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.store import Store
from pockengine.farm.results.results import Results
from pockengine.tests.farm.helpers import record

BOARD = "only"
LONGEST_LIFE_S = 0.06
PATIENCE_S = 20.0


def kill_recorders(folder: Path, kills: int, seed: int = 0) -> list[str]:
    """Kill clients while they store records; return the faults found in the stored records."""
    url = f"sqlite:///{folder / 'results.sqlite'}"
    chance = random.Random(seed)
    promised: list[str] = []
    for number in range(kills):

        def recorder(report: Callable[[str], None], number: int = number) -> None:
            with closing(Results(url)) as results:
                for serial in range(1_000_000):
                    name = f"{number}.{serial}"
                    results.append([record(note=name), record(note=name + "b")])
                    report(name)

        promised += _killed(recorder, chance)
        with closing(Results(url)) as results:  # stores the records that the killed client left
            results.append([])
    with closing(Results(url)) as results:
        stored = Counter(str(one.note) for one in results.find())
    lost = [f"{name} was stored, and is not there" for name in promised if not stored[name]]
    halves = [f"{name} has lost its other half" for name in stored if not stored[_other(name)]]
    return [*lost, *halves, *(f"{name}: {n} times" for name, n in stored.items() if n > 1)]


def _other(name: str) -> str:
    return name.removesuffix("b") if name.endswith("b") else name + "b"


def kill_holders(folder: Path, kills: int, seed: int = 0) -> list[str]:
    """Kill clients while they lease and release a board; return the kills that left it leased."""
    url = f"sqlite:///{folder / 'farm.sqlite'}"
    chance = random.Random(seed)
    wrong = []
    for number in range(kills):

        def holder(report: Callable[[str], None]) -> None:
            leases = Leases(Store(url), Owner.here("holder"))
            while True:
                lease = leases.acquire([BOARD])
                assert lease is not None
                report(lease.ticket)
                leases.release(lease)

        _killed(holder, chance)
        with closing(Store(url)) as store, closing(Leases(store, Owner.here("next"))) as leases:
            before = time.monotonic()
            lease = leases.acquire([BOARD], wait_s=PATIENCE_S)
            assert lease is not None
            if time.monotonic() - before > PATIENCE_S / 2:
                wrong.append(f"kill {number}: the board was free only after {PATIENCE_S / 2} s")
            leases.release(lease)
    return wrong


def _killed(task: Callable[[Callable[[str], None]], None], chance: random.Random) -> list[str]:
    """Run a task in a child process for a random time; return its complete output lines."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            task(lambda line: os.write(writer, f"{line}\n".encode()) and None)
        finally:
            os._exit(1)
    os.close(writer)
    time.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(reader, encoding="ascii") as stream:
        text = stream.read()
    return text.split("\n")[:-1]


@click.command()
@click.option("--kills", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
def main(kills: int, seed: int) -> None:
    """Kill clients and print the losses; the exit status is 1 if there are any."""
    wrong = []
    for task in (kill_recorders, kill_holders):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_DATA_HOME"] = folder
            found = task(Path(folder), kills, seed)
        click.echo(f"{task.__name__}: {kills} kills, {len(found)} wrong")
        wrong += found
    for line in wrong:
        click.echo(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
