"""Tuning: list the plans of a step's kernels, measure them, and record the best.

A problem is an op and a shape; its plans are those that a planner lists (options.py). The likeliest
are all measured: a handful of unordered plans leaves nothing to sample, so Optuna would add a
dependency and no speed (its grid and brute-force samplers would do the same, its TPE needs more
trials than there are plans). The winners are stored in a table (tuned.py).

A kernel is measured alone. Its operands are then warmer than in a step, and an instruction count
ignores caches. So the estimate also matters: it selects the plans to try.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from pockengine.backends.native.build import PARALLEL
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.picking import P, Picker, PlanCandidate, cheapest
from pockengine.backends.protocol import Progress
from pockengine.backends.tuned import TunedPlan, TunedTable
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Choice

PLANS = 6
"""Maximum plans tried per problem."""

FAR = 2.0
"""Plans whose estimate exceeds the default's by this factor are not tried."""

BATCH = 24
"""Kernels per benchmark program."""


@dataclass(frozen=True)
class TuningProblem:
    """An op and a shape, `calls` times in a step, with a kernel per plan, the default's first.

    The node is the first with this problem; its kernels include its epilogue. `templates` is the
    folder of the kernels' templates.
    """

    key: str
    calls: int
    node: Node
    kernels: Mapping[str, Kernel]
    templates: Path

    @property
    def digest(self) -> str:
        """Changes with everything that the figures depend on, except the device."""
        kernels = (kernel.symbol for kernel in self.kernels.values())
        symbols = "\0".join([_headers(self.templates), *kernels])
        return hashlib.sha256(symbols.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Figure:
    """Figures of a kernel: the median call, and the best one."""

    median: float
    best: float


@dataclass(frozen=True)
class Meter:
    """How kernels are measured: figures of each problem's kernels in their order.

    A figure must be lower than the default's by more than the fraction `noise` to win; `unit` is
    their unit. About `at_once` kernels are passed to `measure` together.
    """

    unit: str
    noise: float
    measure: Callable[[Sequence[TuningProblem]], Sequence[Sequence[Figure]]]
    at_once: int = PARALLEL * BATCH


class Planner(Protocol):
    """A backend with a picker, which is called for each node with several plans."""

    def choose(self, node: Node) -> Choice:
        """Choose how to compute a node."""

    def kernel(self, node: Node, choice: Choice | None = None) -> Kernel:
        """Emit a node's kernel."""


def list_problems(
    nodes: Sequence[Node], planner: Callable[[Picker], Planner], plans: int, templates: Path
) -> list[TuningProblem]:
    """List the nodes' problems with more than one plan worth trying, with a kernel per plan."""
    found: dict[str, tuple[list[Node], list[str]]] = {}
    for node in nodes:
        listing = _Listing(plans)
        planner(listing).choose(node)
        for key, labels in listing.found.items():
            found.setdefault(key, ([], labels))[0].append(node)
    problems = []
    for key, (same, labels) in found.items():
        kernels: dict[str, Kernel] = {}
        for label in labels:
            kernel = planner(Forced({key: label})).kernel(same[0])
            if all(kernel.symbol != other.symbol for other in kernels.values()):
                kernels[label] = kernel
        if len(kernels) > 1:
            problems.append(
                TuningProblem(key, len(same), same[0], kernels=kernels, templates=templates)
            )
    return problems


class _Listing:
    """A picker that picks the default, and records the plans to try."""

    def __init__(self, plans: int) -> None:
        self.plans = plans
        self.found: dict[str, list[str]] = {}

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        self.found[key] = likeliest(candidates, self.plans)
        return cheapest(key, candidates)


@dataclass(frozen=True)
class Forced:
    """A picker of plans by problem key; for other problems it picks the default."""

    plans: Mapping[str, str]

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        """Return the plan of that name."""
        label = self.plans.get(key)
        found = (candidate.plan for candidate in candidates if candidate.label == label)
        return next(found, None) or cheapest(key, candidates)


def likeliest(candidates: Sequence[PlanCandidate[P]], count: int) -> list[str]:
    """Return the plans to try: the default, the cheapest of each other method, then by estimate."""
    ranked = sorted(candidates, key=lambda candidate: candidate.cycles)
    ranked = [each for each in ranked if each.cycles <= FAR * ranked[0].cycles]
    firsts = {each.method: each.label for each in reversed(ranked)}
    labels = [ranked[0].label, *firsts.values(), *(each.label for each in ranked)]
    return list(dict.fromkeys(labels))[:count]


def tune(
    problems: Sequence[TuningProblem],
    meter: Meter,
    table: TunedTable,
    save: Callable[[TunedTable], None],
    progress: Progress | None = None,
) -> TunedTable:
    """Measure the problems that are not in the table; `save` is called with the table after each
    batch.
    """
    tell = progress or (lambda _: None)
    missing = [problem for problem in problems if not _is_known(problem, table)]
    if len(missing) < len(problems):
        tell(f"{len(problems) - len(missing)} of {len(problems)} problems are in the table")
    done = 0
    for batch in batches(missing, meter.at_once):
        figures = meter.measure(batch)
        rows = {
            problem.key: decide(problem, each, meter.noise)
            for problem, each in zip(batch, figures, strict=True)
        }
        table = table.with_rows(rows)
        save(table)
        done += len(batch)
        won = sum(row.plan != row.default for row in rows.values())
        tell(f"{done} of {len(missing)} problems measured; of the last {len(batch)}, {won} gain")
    return table


def _is_known(problem: TuningProblem, table: TunedTable) -> bool:
    row = table.rows.get(problem.key)
    return row is not None and row.kernels == problem.digest


def decide(problem: TuningProblem, figures: Sequence[Figure], noise: float) -> TunedPlan:
    """Return the lowest figure that is below the default's by more than noise, else the default."""
    labels, default = list(problem.kernels), figures[0]
    share = 1.0 - noise
    lower = [
        index
        for index, figure in enumerate(figures)
        if figure.median < share * default.median and figure.best < share * default.best
    ]
    won = min(lower, key=lambda index: figures[index].median, default=0)
    return TunedPlan(
        plan=labels[won],
        value=round(figures[won].median),
        default=labels[0],
        default_value=round(default.median),
        kernels=problem.digest,
    )


def batches(problems: Sequence[TuningProblem], kernels: int) -> Iterator[list[TuningProblem]]:
    """Group problems into batches of about this many kernels."""
    batch: list[TuningProblem] = []
    for problem in problems:
        batch.append(problem)
        if sum(len(each.kernels) for each in batch) >= kernels:
            yield batch
            batch = []
    if batch:
        yield batch


@cache
def _headers(templates: Path) -> str:
    """Digest of the templates and the files they include."""
    digest = hashlib.sha256()
    for path in sorted(templates.rglob("*.h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
