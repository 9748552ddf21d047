"""Write studies/results/sparse.md, its plots and its records from the current journal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pockengine.studies.sparse.agreement import agreement_section, agreements_of
from pockengine.studies.sparse.figures import (
    PairFigures,
    SchemeRow,
    criteria_rows,
    disturbed,
    gather,
)
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.predictions import compared, predictions_of, searches_of
from pockengine.studies.sparse.predictors import FILE as PREDICTORS
from pockengine.studies.sparse.predictors import predictor_section, read_predictors
from pockengine.studies.sparse.races import race_section, races_of
from pockengine.studies.sparse.records import write_records
from pockengine.studies.sparse.text import controls, criteria, goals, missing, searched

PAGE = "sparse.md"
READING = "sparse-reading.md"
"""The interpretation of the figures, written by hand; it is the end of the page."""

KIB = 2**10

INTRODUCTION = """\
# Sparse schemes beside full fine-tuning

Written by `bazel run //studies/sparse -- --out studies/results`, which goes on where it stopped.
All training in the tables runs in PockEngine's compiled C, on one thread, with Adam. The new head
is trained alone first, and every scheme starts from there. Each tries the same learning rates on
the validation part, and on more examples where a pair says so; where "The races"
says so, the searched scheme is the winner of a race on them. The test part judges once for each
seed, at the rate that was chosen. Nothing that chooses has seen it.

- **extra arena**: the arena of a training step beyond that of inference, both as planned at compile
  time. Where the step's largest live set is inference's own, it is next to nothing.
- **states**: what the optimizer keeps beside it, two numbers for each that trains.
- **step**: median milliseconds of a step of 16 examples here, one thread, the schemes taking turns;
  least and most. Those with a star were taken while others used the machine, and count in no ratio.
- **instructions**: of such a step on the emulated Raspberry Pi 4, one thread. They are not cycles.
- **accuracy**: mean of the seeds, and the standard deviation.
"""


def write_report(journal: Journal, out: Path) -> Path:
    """Write the page, the plots and the records; return the page's path."""
    from pockengine.studies.sparse.plots import draw_accuracy, draw_predictions, draw_searches

    figures, searches = gather(journal), searches_of(journal)
    predictions, races = predictions_of(journal), races_of(journal)
    parts = [INTRODUCTION, _origin(journal), goals(figures)]
    if figures:
        draw_accuracy(figures, out / "sparse-accuracy.png")
        parts.append("![Accuracy against extra memory](sparse-accuracy.png)")
    parts += [_section(one) for one in figures]
    parts.append(controls(journal))
    parts += [criteria(one.pair, criteria_rows(journal, one.pair)) for one in figures]
    if compared(searches):
        draw_searches(compared(searches), out / "sparse-search.png")
    if predictions:
        draw_predictions(predictions, out / "sparse-predicted.png")
    parts += [race_section(races, figures), searched(searches, predictions)]
    parts.append(agreement_section(agreements_of(journal)))
    parts.append(predictor_section(read_predictors(out / PREDICTORS)))
    parts.append(missing(journal, figures, races))
    if (out / READING).exists():
        parts.append((out / READING).read_text(encoding="utf-8"))
    page = out / PAGE
    page.write_text("\n\n".join(part.strip() for part in parts if part) + "\n", encoding="utf-8")
    write_records(journal, figures, out / "sparse-records.jsonl")
    return page


def _origin(journal: Journal) -> str:
    """Describe the commits of the figures, and the machines of the step times."""
    commits, machines = (
        ", ".join(dict.fromkeys(str(result[name]) for _, result in entries if name in result))
        for name, entries in (
            ("commit", list(journal.entries())),
            ("machine", list(journal.entries(kind="step"))),
        )
    )
    return f"Commit {commits or 'unknown'}. Steps were timed on {machines or 'no machine yet'}."


def _section(figures: PairFigures) -> str:
    facts = figures.facts
    lines = [
        f"## {figures.pair}",
        "",
        f"{facts.get('train', '?')} training, {_validation(facts)} validation, "
        f"{facts.get('test', '?')} test examples (test {facts.get('test_digest', '?')}), "
        f"{facts.get('classes', '?')} classes; the commonest class is "
        f"{100 * float(facts.get('majority', 0)):.1f} % of the test part.",
        "",
        "| scheme | accuracy | seeds | rate | trained | extra arena | states | step, ms "
        "| instructions |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(row) for row in figures.rows)])


def _validation(facts: Mapping[str, Any]) -> str:
    """Describe the number of examples for probes, and of additional ones for rates and races."""
    count = facts.get("validation", "?")
    more = facts.get("choosing", count) - count if count != "?" else 0
    return f"{count} and {more} more" if more else str(count)


def _line(row: SchemeRow) -> str:
    step = "" if row.step is None else "{median:.1f} ({low:.1f} to {high:.1f})".format(**row.step)
    step += "*" if row.step is not None and disturbed(row.step) else ""
    counted = "" if row.instructions is None else f"{row.instructions / 1e6:,.0f} M"
    diverged = f", {row.diverged} diverged" if row.diverged else ""
    cells = [
        row.scheme,
        f"{100 * row.mean:.1f} ± {100 * row.spread:.1f}{diverged}",
        str(len(row.accuracies)),
        f"{row.rate:g}",
        f"{row.trained:,}",
        f"{row.extra_bytes / KIB:,.1f} KiB",
        f"{row.state_bytes / KIB:,.1f} KiB",
        step,
        counted,
    ]
    return f"| {' | '.join(cells)} |"
