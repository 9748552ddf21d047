"""Command line of the campaigns, one per framework.

Each program passes, is refused (a PockEngineError with the reason), is wrong (a number differs from
the framework's) or crashes (any other exception). A program that is wrong or crashes is shrunk and
printed as a script.
"""

import signal
import sys
import time
import warnings

import click

from pockengine.tests.fuzz.campaign import Draws, Framework, Tally, Verdict, run_campaign


def command(framework: Framework) -> click.Command:
    """Return the command that judges programs; its exit status is 1 if one is wrong or crashes."""

    @click.command()
    @click.option("--programs", "count", default=1000, show_default=True, type=click.IntRange(1))
    @click.option("--seed", default=0, show_default=True, help="Seed of the first program.")
    @click.option(
        "--size", default=8, show_default=True, help="Maximum number of statements of a program."
    )
    @click.option(
        "--batch", default=64, show_default=True, help="Number of programs imported together."
    )
    @click.option("--code-every", default=0, help="Also run every Nth batch in C; 0: none.")
    def main(count: int, seed: int, size: int, batch: int, code_every: int) -> None:
        """Generate random programs, and compare their loss and gradients with the framework's.

        If it is interrupted or terminated, it still prints the refusals.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        warnings.filterwarnings("ignore")
        started = time.monotonic()
        tally = run_campaign(
            framework,
            count,
            Draws(seed, size, batch),
            code_every=code_every,
            report=lambda verdict: _report(framework, verdict),
            progress=lambda tally: _progress(tally, started),
        )
        for words, number in tally.refusals.most_common():
            click.echo(f"{number:7} refused: {words}")
        sys.exit(1 if tally.faults else 0)

    return main


def _report(framework: Framework, verdict: Verdict) -> None:
    if verdict.outcome in ("wrong", "crashed"):
        click.echo(f"--- {verdict.outcome}\n{verdict.program.snippet(framework.heading)}")
        click.echo(f"# {verdict.words}".replace("\n", "\n# "))


def _progress(tally: Tally, started: float) -> None:
    counts = ", ".join(f"{number} {outcome}" for outcome, number in tally.outcomes.items())
    seconds = time.monotonic() - started
    click.echo(f"{tally.outcomes.total()} programs in {seconds:.0f} s: {counts}")
