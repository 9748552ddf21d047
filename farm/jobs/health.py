"""Health check of a board, before its first job and after a failure.

Checks SSH, disk, memory, clock, temperature, and a program with a known answer, built for the
device if a compiler is available.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pockengine.devices import Device
from pockengine.errors import FarmError
from pockengine.farm.boards.facts import BoardFacts, ask
from pockengine.farm.jobs.known_answer import ANSWER, known_answer_program
from pockengine.farm.transports.digest import sha256_of
from pockengine.farm.transports.transport import Transport

# Expected SHA-256 of the check that replaces the program if no compiler can build it.
ZEROS = "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025"
KERNEL_LIMIT_S = 60.0

Tell = Callable[[str], None]
"""Called before slow steps."""


@dataclass(frozen=True)
class Needs:
    """Requirements of a healthy board; `clock_s` is the maximum clock difference."""

    disk_bytes: int = 64 << 20
    memory_bytes: int = 48 << 20
    clock_s: float = 120.0
    temperature_c: float = 80.0


@dataclass(frozen=True)
class Health:
    """Result of a check: the facts, and the faults; healthy if there are none."""

    facts: BoardFacts
    problems: tuple[str, ...]


def check_health(
    transport: Transport, device: Device, needs: Needs | None = None, tell: Tell = lambda _: None
) -> Health:
    """Check a board; FarmError if it does not answer."""
    needs = needs or Needs()
    before = time.time()
    facts = ask(transport)
    problems = [*_shortages(facts, needs), *_clock(facts, before, needs)]
    if not problems:  # the program would only fail for the same reasons
        problems += _known_answer(transport, device, tell)
    return Health(facts, tuple(problems))


def require_health(
    transport: Transport, device: Device, needs: Needs | None = None, tell: Tell = lambda _: None
) -> BoardFacts:
    """Check a board; FarmError lists its faults."""
    health = check_health(transport, device, needs, tell)
    if health.problems:
        raise FarmError(f"{transport.board} is not healthy: {'; '.join(health.problems)}")
    return health.facts


def _shortages(facts: BoardFacts, needs: Needs) -> Iterator[str]:
    if facts.disk_bytes is not None and facts.disk_bytes < needs.disk_bytes:
        yield f"{facts.disk_bytes} bytes of disk are free, {needs.disk_bytes} are needed"
    if facts.free_bytes is not None and facts.free_bytes < needs.memory_bytes:
        yield f"{facts.free_bytes} bytes of memory are free, {needs.memory_bytes} are needed"
    if facts.weak:
        yield f"its battery has {facts.battery} % and is not charging"
    if facts.temperature_c is not None and facts.temperature_c > needs.temperature_c:
        yield f"it is {facts.temperature_c:.0f} °C hot, {needs.temperature_c:.0f} is the most"


def _clock(facts: BoardFacts, before: float, needs: Needs) -> Iterator[str]:
    if facts.clock_s is None:
        return
    late, early = before - facts.clock_s, facts.clock_s - time.time()
    if max(late, early) > needs.clock_s:
        word = f"{late:.0f} s behind" if late > early else f"{early:.0f} s ahead"
        yield f"its clock is {word}"


def _known_answer(transport: Transport, device: Device, tell: Tell) -> Iterator[str]:
    program = known_answer_program(device, tell)
    if program is None:
        argv = ["sh", "-c", "head -c 1000000 /dev/zero | sha256sum"]
        printed = transport.run(argv, timeout_s=KERNEL_LIMIT_S).stdout[:64]
        if printed != ZEROS.encode():
            yield f"it hashes a million zeros to {printed.decode(errors='replace') or 'nothing'}"
        return
    target = f"{transport.workdir}/known-answer-{sha256_of(program)[:16]}"
    transport.put(program, target)
    result = transport.run([*transport.launcher, target], timeout_s=KERNEL_LIMIT_S)
    if result.stdout != ANSWER:
        yield f"a known kernel said {result.stdout[:60]!r}, {result.describe()}"
