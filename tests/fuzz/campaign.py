"""Judge many programs in batches; a failing batch is split."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np

from pockengine.errors import ImportModelError, PockEngineError
from pockengine.tests.fuzz.compare import Imported, Results, by_code, by_graph, by_step
from pockengine.tests.fuzz.program import Language, Program, draw, shrink

TOLERANCE = 2e-4
"""Maximum error relative to a tensor's largest element, or to 0.1 if that is smaller."""
CONDITION = 30.0
"""Allowed error as a multiple of the framework's own float32 error against its float64."""
CHAOTIC = 1e-2
"""Relative float32 error of the framework itself above which a program is not judged."""

PROBLEM = re.compile(r"\s*\d+ x (?P<thing>.+?) in (?P<places>.+?): (?P<reason>.*)")
PLACE = re.compile(r"(?<![\w.])p(\d+)(?![\w])")

METHODS: dict[str, Callable[[Imported], Results]] = {
    "graph": by_graph,
    "step": by_step,
    "C": by_code,
}


class Framework(Language, Protocol):
    """A language with its reference and its frontend."""

    heading: str
    """The imports of a script."""

    def references(
        self, programs: Sequence[Program], *, double: bool = False
    ) -> list[list[np.ndarray] | None]:
        """Return each program's loss and gradients; None if the framework does not run it."""

    def graph(self, programs: Sequence[Program]) -> Imported:
        """Import programs as one model."""


@dataclass(frozen=True)
class Case:
    """A program with the framework's loss and gradients."""

    program: Program
    reference: list[np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a program: "passed", "refused", "wrong" or "crashed", and the message."""

    program: Program
    outcome: str
    words: str = ""


@dataclass
class Tally:
    """Counts of a campaign, and the programs that are wrong or crash."""

    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    faults: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count one program."""
        self.outcomes[verdict.outcome] += 1
        if verdict.outcome == "refused":
            self.refusals[kind_of(verdict.words)] += 1
        elif verdict.outcome != "passed":
            self.faults.append(verdict)


def kind_of(words: str) -> str:
    """Return a message without names and numbers, so that equal refusals are counted together."""
    lines = words.strip().splitlines() or [""]
    line = lines[min(1, len(lines) - 1)]
    match = PROBLEM.match(line)
    line = f"{match['thing']}: {match['reason']}" if match else line
    return re.sub(r"\d+", "#", line).strip()[:160]


@dataclass(frozen=True)
class Draws:
    """Seed of the first program, maximum statements per program, and programs per import."""

    seed: int = 0
    size: int = 8
    batch: int = 64


def cases_of(framework: Framework, draws: Draws) -> Iterator[Case]:
    """Yield an unlimited number of programs that the framework itself can differentiate."""
    for first in itertools.count(draws.seed, draws.batch):
        seeds = range(first, first + draws.batch)
        yield from _runnable(framework, [draw(framework, seed, draws.size) for seed in seeds])


def _runnable(framework: Framework, programs: Sequence[Program]) -> list[Case]:
    return [
        Case(program, arrays)
        for program, arrays in zip(programs, framework.references(programs), strict=True)
        if arrays is not None and all(np.isfinite(array).all() for array in arrays)
    ]


def judge(framework: Framework, cases: Sequence[Case], methods: Sequence[str]) -> list[Verdict]:
    """Judge programs together, and split them if that fails."""
    try:
        imported = framework.graph([case.program for case in cases])
        results = {method: METHODS[method](imported) for method in methods}
    except Exception as error:
        return _judge_parts(framework, cases, methods, error)
    return [
        _verdict(framework, case, {method: found[place] for method, found in results.items()})
        for place, case in enumerate(cases)
    ]


def _judge_parts(
    framework: Framework, cases: Sequence[Case], methods: Sequence[str], error: Exception
) -> list[Verdict]:
    """Drop the programs that the error names; if it names none, judge the halves."""
    if len(cases) == 1:
        outcome = "refused" if isinstance(error, PockEngineError) else "crashed"
        return [Verdict(cases[0].program, outcome, _words(error))]
    blamed = _named_programs(str(error)) if isinstance(error, ImportModelError) else {}
    middle = len(cases) // 2
    parts: Sequence[Sequence[Case]] = (cases[:middle], cases[middle:])
    if blamed:
        parts = [[case for place, case in enumerate(cases) if place not in blamed]]
    refused = [Verdict(cases[place].program, "refused", words) for place, words in blamed.items()]
    return [*refused, *(v for part in parts if part for v in judge(framework, part, methods))]


def _named_programs(words: str) -> dict[int, str]:
    """Return the indices of the programs named in a list of problems, each with its line."""
    found: dict[int, str] = {}
    for line in words.splitlines()[1:]:
        match = PROBLEM.match(line)
        for place in PLACE.findall(match["places"]) if match else ():
            found.setdefault(int(place), f"{match['thing']}: {match['reason']}" if match else "")
    return found


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, PockEngineError) else f"{type(error).__name__}: {error}"


def _verdict(framework: Framework, case: Case, results: dict[str, list[np.ndarray]]) -> Verdict:
    program = case.program
    names = ["the loss", *(f"the gradient of {name}" for name in program.trained)]
    for method, found in results.items():
        for name, ours, theirs in zip(names, found, case.reference, strict=True):
            if differs(ours, theirs, TOLERANCE) and not _is_rounding(framework, case, found):
                words = f"{name} by the {method}:\n{_short(ours)}\nand not\n{_short(theirs)}"
                return Verdict(program, "wrong", words)
    return Verdict(program, "passed")


def _short(array: np.ndarray) -> str:
    return np.array2string(np.asarray(array), precision=5, threshold=40)


def differs(ours: np.ndarray, theirs: np.ndarray, tolerance: Any) -> bool:
    """Return whether an element differs by more than the tolerance, relative to the largest one."""
    if ours.shape != theirs.shape:
        return True
    if theirs.size == 0:
        return False
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(ours.astype(np.float64) - theirs))
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = max(float(finite.max()) if finite.size else 0.0, 0.1)
    return bool((~(error <= tolerance * scale)).any())


def _is_rounding(framework: Framework, case: Case, found: list[np.ndarray]) -> bool:
    """Return whether the framework's own float32 and float64 results differ as much."""
    (double,) = framework.references([case.program], double=True)
    if double is None:  # a program whose mixed types do not support float64
        return False
    for ours, theirs, exact in zip(found, case.reference, double, strict=True):
        scale = max(float(np.abs(exact).max(initial=0)), 0.1)
        own = float(np.abs(theirs - exact).max(initial=0)) / scale
        if not np.isfinite(own) or own > CHAOTIC:
            return True
        if differs(ours, theirs, TOLERANCE + CONDITION * own):
            return False
    return True


def smallest(framework: Framework, verdict: Verdict, methods: Sequence[str]) -> Verdict:
    """Shrink a program that is wrong or crashes on its own."""

    def again(program: Program) -> Verdict | None:
        cases = _runnable(framework, [program])
        return judge(framework, cases, methods)[0] if cases else None

    def fails(program: Program) -> bool:
        found = again(program)
        return found is not None and found.outcome == verdict.outcome

    if not fails(verdict.program):
        return verdict
    return again(shrink(verdict.program, fails)) or verdict


def run_campaign(
    framework: Framework,
    count: int,
    draws: Draws,
    *,
    code_every: int = 0,
    report: Callable[[Verdict], None] = lambda verdict: None,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Draw and judge `count` programs; run every `code_every`th batch in generated C too.

    An interrupt ends it, with the results of the batches so far.
    """
    tally, source = Tally(), cases_of(framework, draws)
    with suppress(KeyboardInterrupt):
        for number in itertools.count(1):
            missing = count - tally.outcomes.total()
            if missing <= 0:
                break
            cases = list(islice(source, min(draws.batch, missing)))
            with_code = code_every and number % code_every == 0
            methods = tuple(METHODS) if with_code else ("graph", "step")
            for verdict in judge(framework, cases, methods):
                if verdict.outcome in ("wrong", "crashed"):
                    verdict = smallest(framework, verdict, methods)
                tally.add(verdict)
                report(verdict)
            progress(tally)
    return tally
