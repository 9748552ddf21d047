"""Verdicts on the models of a zoo, one per line."""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

import click

from pockengine.errors import PockEngineError

PASSED, REFUSED, WRONG, CRASHED = "pass", "refused", "wrong", "crash"

Model = TypeVar("Model")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a model."""

    kind: str
    words: str
    seconds: float


def judge(build: Callable[[], Model], compared: Callable[[Model], str]) -> Verdict:
    """Build a model and compare it with its framework by `compared`; return the verdict."""
    start = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            words = compared(build())
        kind = WRONG if words else PASSED
    except PockEngineError as error:
        kind, words = REFUSED, str(error)
    except Exception as error:  # any other exception is a compiler bug
        kind, words = CRASHED, f"{type(error).__name__}: {error}"
    return Verdict(kind, words, time.monotonic() - start)


def command(
    zoo: Mapping[str, Callable[[], Model]], compared: Callable[[Model], str]
) -> click.Command:
    """Return the command that judges the models of one zoo."""

    @click.command()
    @click.option(
        "--only", multiple=True, default=("*",), help="Names of models, as shell patterns."
    )
    def main(only: tuple[str, ...]) -> None:
        """Judge the models and count the verdicts."""
        counts: Counter[str] = Counter()
        for name, build in zoo.items():
            if any(fnmatchcase(name, pattern) for pattern in only):
                verdict = judge(build, compared)
                counts[verdict.kind] += 1
                words = " ".join(verdict.words.split())[:160]
                click.echo(f"{name:32} {verdict.kind:8} {verdict.seconds:6.1f} s  {words}")
        click.echo(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))

    return main
