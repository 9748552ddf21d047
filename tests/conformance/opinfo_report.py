"""Reports of OpInfo results: a table by op, a summary, and records."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from rich.table import Table

from pockengine import __version__
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record, now
from pockengine.tests.conformance.opinfo_run import FAILED, PASSED, UNSUPPORTED, Result

REASONS = 15
"""Number of reasons in the summary, the most frequent first."""

_OPERATION = re.compile(r"^\s*\d+ x (.+?) in [^:]*: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Tally:
    """Samples of one op by outcome."""

    op: str
    results: Sequence[Result]

    def count(self, status: str) -> int:
        """Return the number of samples with this outcome."""
        return sum(result.status == status for result in self.results)

    @property
    def status(self) -> str:
        """Return the op's status: passed if a non-empty sample passes and none fails."""
        if self.count(FAILED):
            return FAILED
        judged = [r for r in self.results if r.status == PASSED and not r.empty]
        return PASSED if judged else UNSUPPORTED

    @property
    def reasons(self) -> Counter[str]:
        """Return the reasons why samples did not pass, with their counts."""
        return Counter(reason(result) for result in self.results if result.status != PASSED)


def reason(result: Result) -> str:
    """Return a result's reason in one line, without the names and numbers of its sample."""
    found = _OPERATION.search(result.reason)
    text = f"{found[1]}: {found[2]}" if found else result.reason.strip().splitlines()[0]
    if result.status == FAILED:
        return text
    text = re.sub(r"%?s\d+_[pw]\d+", "a tensor", text)
    return re.sub(r"[(\[]\d[\d, ]*[)\]]", "[...]", text)


def tallies(results: Sequence[Result]) -> list[Tally]:
    """Group results by op, sorted by name."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.op, []).append(result)
    return [Tally(op, groups[op]) for op in sorted(groups)]


def op_table(ops: Sequence[Tally]) -> Table:
    """Return a row per op: counts, and the most frequent reason if not all passed."""
    table = Table(title="PyTorch OpInfo samples, loss and gradients by generated C")
    table.add_column("op", no_wrap=True)
    for heading in (PASSED, FAILED, UNSUPPORTED):
        table.add_column(heading, justify="right")
    table.add_column("the op")
    table.add_column("most frequent reason", max_width=70)
    colors = {PASSED: "green", FAILED: "red", UNSUPPORTED: "yellow"}
    for op in ops:
        common = op.reasons.most_common(1)
        counts = (str(op.count(status) or "") for status in (PASSED, FAILED, UNSUPPORTED))
        status = f"[{colors[op.status]}]{op.status}[/]"
        table.add_row(op.op, *counts, status, common[0][0][:140] if common else "")
    return table


def reason_table(ops: Sequence[Tally]) -> Table:
    """Summarize the reasons why samples of any op did not pass."""
    total: Counter[str] = Counter()
    where: dict[str, set[str]] = {}
    for op in ops:
        for text, count in op.reasons.items():
            total[text] += count
            where.setdefault(text, set()).add(op.op)
    table = Table(title=f"Reasons ({min(REASONS, len(total))} of {len(total)})")
    table.add_column("samples", justify="right")
    table.add_column("ops", justify="right")
    table.add_column("reason")
    for text, count in total.most_common(REASONS):
        table.add_row(str(count), str(len(where[text])), text[:200])
    return table


def summary(ops: Sequence[Tally]) -> str:
    """Summarize the counts in one paragraph."""
    figures = metrics(ops)
    samples = sum(len(op.results) for op in ops)
    failed = sum(op.count(FAILED) for op in ops)
    return (
        f"{len(ops)} ops: {figures['ops_passed']} passed, {figures['ops_failed']} failed, "
        f"{figures['ops_unsupported']} unsupported. {samples} samples: "
        f"{figures['samples_passed']} passed, {failed} failed, "
        f"{samples - failed - figures['samples_passed']} unsupported."
    )


def metrics(ops: Sequence[Tally]) -> dict[str, int]:
    """Return the figures of a run by their names in records."""
    counts = Counter(op.status for op in ops)
    return {
        "ops_passed": counts[PASSED],
        "ops_failed": counts[FAILED],
        "ops_unsupported": counts[UNSUPPORTED],
        "samples_passed": sum(op.count(PASSED) for op in ops),
    }


def records(ops: Sequence[Tally], scope: str) -> list[Record]:
    """Make a record of each figure; `scope` describes the ops and samples."""
    figures: Mapping[str, int] = metrics(ops)
    return [
        Record(
            time=now(),
            commit=current_commit(),
            device="host",
            board="local",
            emulated=False,
            model="opinfo",
            batch=1,
            dtype="f32",
            scheme="full",
            threads=1,
            engine="pockengine",
            engine_version=__version__,
            metric=name,
            unit=name.partition("_")[0],
            value=float(value),
            min=float(value),
            max=float(value),
            n=1,
            ok=figures["ops_failed"] == 0,
            note=f"{scope}; PyTorch {torch.__version__}",
        )
        for name, value in figures.items()
    ]
