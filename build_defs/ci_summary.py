"""Report what Bazel's tests took: `ci_summary.py LOG BUDGET`, after a run whose output is LOG.

Prints the ten targets of the most processor time, and counts test cases last. Fails if the targets'
processor time exceeds BUDGET seconds of the reference machine. A fixed workload calibrates this
machine, since speed differs threefold between machines, and with load on a sibling core.
"""

import os
import re
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

STATES = "PASSED|FAILED TO BUILD|FAILED|TIMEOUT|NO STATUS"
SUMMARY = re.compile(rf"^//(\S*):(\S+) +(?:\(cached\) )?({STATES})")
PROCESSOR = re.compile(r"^processor time: ([\d.]+) s$", re.MULTILINE)
REFERENCE_SECONDS = 0.42
"""Processor time of `_work` on the reference machine, two threads of a core of an AMD EPYC: the
least that was measured there. It varies by a quarter with the neighbors.
"""


def _work(_: int) -> float:
    """Return the processor time of fixed work."""
    started, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number * number % 7
    return time.process_time() - started


def slowness() -> float:
    """Return this machine's time over the reference's, with all cores busy."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        rounds = [sum(pool.map(_work, range(cores))) / cores for _ in range(5)]
    return min(rounds) / REFERENCE_SECONDS


def outcomes(report: Path) -> Counter[str]:
    """Count a JUnit report's cases; none if it cannot be read."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Counter()
    return Counter(
        "failed" if {"failure", "error"} & {child.tag for child in case}
        else "skipped" if case.find("skipped") is not None
        else "passed"
        for case in cases
    )  # fmt: skip


def main() -> int:
    """Print the report; return 1 beyond the budget."""
    log, budget = Path(sys.argv[1]), float(sys.argv[2])
    counts: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for line in log.read_text(errors="replace").splitlines():
        target = SUMMARY.match(line)
        if target is None:
            continue
        folder, name, state = target.groups()
        logs = Path("bazel-testlogs", folder, name)
        if (logs / "test.log").exists():
            text = (logs / "test.log").read_text(errors="replace")
            seconds[f"//{folder}:{name}"] = sum(map(float, PROCESSOR.findall(text)))
        built = state not in ("FAILED TO BUILD", "NO STATUS")
        found = outcomes(logs / "test.xml") if built else Counter()
        if state != "PASSED" and not found["failed"]:
            found["failed"] += 1  # a build error or a timeout leaves no report of its own
        counts += found or Counter(passed=1)
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True)[:10]:
        print(f"{seconds[name]:6.0f} s of processor time: {name}")
    total, slower = sum(seconds.values()), slowness()
    print(f"{total:.0f} s of processor time for {len(seconds)} targets")
    print(f"{total / slower:.0f} s on the reference machine, of a budget of {budget:.0f} s")
    print(", ".join(f"{counts[each]} {each}" for each in ("passed", "failed", "skipped")))
    return int(total / slower > budget)


if __name__ == "__main__":
    sys.exit(main())
