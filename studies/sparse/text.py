"""The page's text with figures: sentences are generated from measurements only."""

import statistics
from collections.abc import Sequence

from pockengine.finetune.gains import UNITS
from pockengine.studies.sparse.figures import (
    Against,
    PairFigures,
    SchemeRow,
    against,
    geometric,
)
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.plan import BLIND, PAIRS
from pockengine.studies.sparse.predictions import (
    DRAWN,
    RANDOM,
    SEARCH,
    Prediction,
    Search,
    compared,
    final_gain,
    pooled,
)
from pockengine.studies.sparse.races import Race
from pockengine.studies.sparse.schemes import FULL, LORA

GOAL_POINTS, GOAL_RATIO = 0.5, 4.5


def goals(figures: Sequence[PairFigures]) -> str:
    """Compare the searched schemes with full training, and with LoRA."""
    parts = ["## Searched beside full and LoRA"]
    full, lora = against(figures, FULL), against(figures, LORA)
    if not full:
        return "\n\n".join([*parts, "No pair has both a searched and a full scheme yet."])
    points = statistics.fmean(one.points for one in full)
    memory = geometric([one.memory for one in full])
    reached = points >= -GOAL_POINTS and memory >= GOAL_RATIO
    parts.append(
        f"Over {len(full)} of {len(PAIRS) + len(BLIND)} pairs the searched scheme is "
        f"{points:+.2f} points from full on average, at {memory:.1f}x less extra memory "
        "(arena and states; geometric mean). "
        f"The goal, within {GOAL_POINTS} points at {GOAL_RATIO}x, is "
        f"{'reached' if reached else 'missed'} on these. Further below: "
        f"{_further_below(full)}."
    )
    parts.append(_table("full", full))
    if lora:
        parts.append(_table("LoRA (rank 8)", lora))
    return "\n\n".join(parts)


def _further_below(rows: Sequence[Against]) -> str:
    pairs = [f"{one.pair} ({one.points:+.1f})" for one in rows if one.points < -GOAL_POINTS]
    return ", ".join(pairs) or "none"


def _table(other: str, rows: Sequence[Against]) -> str:
    lines = [
        f"| searched against {other} | points | less extra memory | less memory in all "
        "| extra arena, KiB | faster step |",
        "|---|---|---|---|---|---|",
    ]
    for one in rows:
        step = "" if one.step is None else f"{one.step:.2f}x"
        lines.append(
            f"| {one.pair} | {one.points:+.1f} | {one.memory:.1f}x | {one.whole:.1f}x "
            f"| {one.arenas[0] / 1024:,.1f} against {one.arenas[1] / 1024:,.1f} | {step} |"
        )
    steps = [one.step for one in rows if one.step is not None]
    lines.append(
        f"| all | {statistics.fmean(one.points for one in rows):+.2f} "
        f"| {geometric([one.memory for one in rows]):.1f}x "
        f"| {geometric([one.whole for one in rows]):.1f}x | "
        f"| {f'{geometric(steps):.2f}x' if steps else ''} |"
    )
    return "\n".join(lines)


def controls(journal: Journal) -> str:
    """Compare PyTorch's accuracy with ours for the same data order, rate and seed."""
    lines = []
    for key, result in journal.entries(kind="control"):
        shared = ("pair", "scheme", "rate", "epochs", "seed", "train", "judged_by")
        filters = {name: key[name] for name in shared}
        ours = [r for _, r in journal.entries(kind="trial", purpose="final", **filters)]
        if ours:
            lines.append(
                f"| {key['pair']} | {key['scheme']} | {100 * ours[-1]['accuracy']:.1f} "
                f"| {100 * result['accuracy']:.1f} | {result['engine']} |"
            )
    if not lines:
        return ""
    head = [
        "## The control in PyTorch",
        "",
        "The same module, data order, rates and seed; test accuracy in %.",
        "",
        "| pair | scheme | compiled C | PyTorch | engine |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines])


def criteria(pair: str, rows: Sequence[SchemeRow]) -> str:
    """Compare the criteria for choosing a quarter of each weight's channels."""
    if not rows:
        return ""
    head = [
        f"## Which quarter of the channels ({pair})",
        "",
        "The preset sparse scheme with a quarter of each weight's input channels, not all, at the "
        "preset's rate.",
        "",
        "| criterion | accuracy | seeds | extra arena |",
        "|---|---|---|---|",
    ]
    lines = [
        f"| {row.scheme} | {100 * row.mean:.1f} ± {100 * row.spread:.1f} | {len(row.accuracies)} "
        f"| {row.extra_bytes / 1024:,.1f} KiB |"
        for row in rows
    ]
    return "\n".join([*head, *lines])


def searched(searches: Sequence[Search], predictions: Sequence[Prediction]) -> str:
    """Compare NSGA-II with random search, and predicted gains with validated ones."""
    parts = []
    if groups := compared(searches):
        parts += [_samplers(groups), "![Searches](sparse-search.png)"]
    if predictions:
        rho, count = pooled(predictions)
        clause = "cannot be told" if rho is None else f"is {rho:.2f}"
        parts.append(
            f"The rank correlation of predicted gain and validated accuracy {clause} over {count} "
            f"schemes in the races of {len(predictions)} pairs: the mean of the pairs' own."
        )
        parts.append("![Prediction against validation](sparse-predicted.png)")
    return "\n\n".join(["## The search", *parts]) if parts else ""


def _samplers(groups: Sequence[Sequence[Search]]) -> str:
    lines = [
        "Best predicted gain over the head alone within the budget, mean of the seeds, at equal "
        "evaluations. The search is NSGA-II from the longest greedy beginnings that fit; random "
        "search and NSGA-II from random draws are the controls.",
        "",
        "| pair | budget | evaluations | searches | the search | NSGA-II from draws | random |",
        "|---|---|---|---|---|---|---|",
    ]
    for own in groups:
        first = own[0]
        gains = [final_gain(own, sampler) for sampler in (SEARCH, DRAWN, RANDOM)]
        unit = UNITS[first.measure]
        cells = ["" if gain is None else f"{100 * gain:.1f} {unit}" for gain in gains]
        lines.append(
            f"| {first.pair} | {first.budget / 1024:,.0f} KiB | {len(first.curve)} | {len(own)} "
            f"| {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def missing(journal: Journal, figures: Sequence[PairFigures], races: Sequence[Race]) -> str:
    """List missing runs, and those that lack seeds."""
    lines = [
        f"- {pair}: not run"
        for pair in (*PAIRS, *BLIND)
        if str(pair) not in {one.pair for one in figures}
    ]
    raced = {race.pair for race in races if race.tested}
    for one in figures:
        if one.row("searched") is None:
            lines.append(f"- {one.pair}: no searched scheme")
        elif one.pair not in raced:
            lines.append(
                f"- {one.pair}: not tested since races; its searched scheme was chosen without the "
                "presets, by gains in accuracy whatever their reliability"
            )
        elif "choosing" not in one.facts:
            lines.append(
                f"- {one.pair}: raced by an earlier method: rates over half of the epochs, and the "
                "validation part alone as judge"
            )
        most = max(len(row.accuracies) for row in one.rows)
        lines += [
            f"- {one.pair}: {row.scheme} has {len(row.accuracies)} of {most} seeds"
            for row in one.rows
            if len(row.accuracies) < most
        ]
        if any(row.instructions is None for row in one.rows):
            lines.append(f"- {one.pair}: instructions not counted for every scheme")
        if any(row.step is None for row in one.rows):
            lines.append(f"- {one.pair}: a step's time not measured for every scheme")
    controlled = {str(key["model"]) for key, _ in journal.entries(kind="control")}
    models = dict.fromkeys(one.pair.split("/")[0] for one in figures)
    lines += [f"- {model}: no control in PyTorch" for model in models if model not in controlled]
    if not lines:
        return ""
    return "\n".join(["## What is missing", "", *lines])
