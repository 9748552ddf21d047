"""Import sample calls of every public function of a framework's modules, and judge them.

A call is judged like the fuzzer's programs: the weighted sum of its results and all gradients are
compared with the framework's, in the oracle, after all passes, and optionally in generated C. A
function passes if a call passes and none is wrong or crashes; it is refused if every call is.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import click

from pockengine.tests.conformance.numpy_samples import leaves
from pockengine.tests.fuzz.campaign import Case, Framework, Verdict, judge
from pockengine.tests.fuzz.program import Program

BATCH = 32
"""Number of calls that are imported together."""

ORDER = ("crashed", "wrong", "passed", "refused")
"""Outcomes by precedence: a function has the first of these that one of its calls has."""


@dataclass(frozen=True)
class Judged:
    """A function's calls with their outcomes."""

    name: str
    verdicts: Sequence[Verdict]

    @property
    def outcome(self) -> str:
        """The outcome of the function."""
        return min((verdict.outcome for verdict in self.verdicts), key=ORDER.index)


def public_functions(module: ModuleType) -> set[str]:
    """Return the names of a module's functions, without classes and modules."""
    names = (name for name in dir(module) if not name.startswith("_"))
    return {
        name
        for name in names
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    }


def function_of(call: str) -> str:
    """Return the function of a sample call: the text before its first parenthesis."""
    return call.split("(", 1)[0].split("[", 1)[0]


def program_of(call: str, number: int, total: str) -> Program:
    """Make a program of a call; `total` names the function that sums its results."""
    used = {name: leaf for name, leaf in leaves().items() if re.search(rf"\b{name}\b", call)}
    if not any(leaf.trained for leaf in used.values()):
        used["v"] = leaves()["v"]
    module, _, function = total.rpartition(".")
    body = (f"from {module} import {function}", f"y = {call}")
    own = [f"{function}({name})" for name, leaf in used.items() if leaf.trained]
    return Program(number, used, body, (f"{function}(y)", *own))


def run_calls(
    framework: Framework, calls: Iterable[str], total: str, methods: Sequence[str]
) -> dict[str, Verdict]:
    """Judge each call; one that the framework itself cannot run is "unrunnable"."""
    found: dict[str, Verdict] = {}
    listed = list(dict.fromkeys(calls))
    for start in range(0, len(listed), BATCH):
        part = listed[start : start + BATCH]
        programs = {call: program_of(call, start + i, total) for i, call in enumerate(part)}
        references = framework.references(list(programs.values()))
        cases = []
        for (call, program), arrays in zip(programs.items(), references, strict=True):
            if arrays is None:
                found[call] = Verdict(program, "unrunnable")
            else:
                cases.append(Case(program, arrays))
        by_program = {id(v.program): v for v in judge(framework, cases, methods)} if cases else {}
        found |= {c: by_program[id(p)] for c, p in programs.items() if id(p) in by_program}
        click.echo(f"{start + len(part)} of {len(listed)} calls", err=True)
    return found


def by_function(verdicts: Mapping[str, Verdict]) -> list[Judged]:
    """Group the verdicts of calls by function, sorted by name."""
    groups: dict[str, list[Verdict]] = {}
    for call, verdict in verdicts.items():
        if verdict.outcome != "unrunnable":
            groups.setdefault(function_of(call), []).append(verdict)
    return [Judged(name, groups[name]) for name in sorted(groups)]


def summary(judged: Sequence[Judged]) -> dict[str, Counter[str]]:
    """Count the outcomes of functions by module."""
    counts: dict[str, Counter[str]] = {}
    for one in judged:
        counts.setdefault(one.name.rpartition(".")[0], Counter())[one.outcome] += 1
    return counts


def command(
    framework: Framework, total: str, calls: Callable[[], list[str]], help_text: str
) -> click.Command:
    """Return a framework's command line; the exit status is 1 if a call is wrong or crashes."""

    @click.command(help=help_text)
    @click.option(
        "--only", default="", help="Run only the calls that match this regular expression."
    )
    @click.option("--code", is_flag=True, help="Also run generated C.")
    def main(only: str, code: bool) -> None:
        warnings.simplefilter("ignore")
        chosen = [call for call in calls() if re.search(only, call)]
        methods = ("graph", "step", "C") if code else ("graph", "step")
        verdicts = run_calls(framework, chosen, total, methods)
        for call, verdict in verdicts.items():
            if verdict.outcome != "passed":
                click.echo(f"{verdict.outcome:10} {call}  # {_line(verdict.words)}")
        judged = by_function(verdicts)
        for module, counts in summary(judged).items():
            parts = ", ".join(f"{counts[name]} {name}" for name in reversed(ORDER) if counts[name])
            click.echo(f"{module}: {counts.total()} functions: {parts}")
        raise SystemExit(any(one.outcome in ORDER[:2] for one in judged))

    return main


def _line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines()]
    return " | ".join(line for line in lines if line)[:300]
