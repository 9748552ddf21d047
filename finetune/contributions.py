"""The contribution table: the gain of each item over tuning only the head, as JSON lines on disk.

The first line is a header: model, data, recipe, seeds and baseline, by digests where they are
large. Each further line is one finished trial, written at once, so a killed run loses only the
running trials. Opening the table again checks the header, drops a torn last line, and reads the
finished trials.
"""

import fcntl
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pockengine.errors import FinetuneError, reason_of
from pockengine.finetune.judges import ACCURACY as BY_ACCURACY
from pockengine.finetune.judges import Judge, judge_named
from pockengine.finetune.signal import Noise, noise_of
from pockengine.finetune.trial import TrialOutcome

SCHEMA = 1
KINDS = ("weight", "biases")
ACCURACY, LOSS = BY_ACCURACY.name, "loss"
"""Measure of a gain: a better score by a judge of this name, or less training loss."""

Header = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Item:
    """A parameter set that a scheme may train besides the head.

    `kind` "weight": the weight `name`, at a `share` of its channels chosen by `by`. "biases": the
    bias set `name`, whole. `by` is "" if nothing is chosen.
    """

    kind: str
    name: str
    share: float = 1.0
    by: str = ""

    def __post_init__(self) -> None:
        words = isinstance(self.name, str) and isinstance(self.by, str)
        if self.kind not in KINDS or not words or not self.name or not 0 < self.share <= 1:
            raise FinetuneError(
                f"{self.kind} {self.name!r} at {self.share!r} is no item: the kind is one of "
                f"{', '.join(KINDS)}, the share in (0, 1]"
            )

    def __str__(self) -> str:
        if self.kind == "biases":
            return f"biases, {self.name}"
        share = "" if self.share == 1 else f" {self.share:g}"
        return f"{self.name}{share}{f' by {self.by}' if self.by else ''}"


@dataclass(frozen=True)
class Gain:
    """Improvement over the baseline at the same seed: mean, standard deviation over n seeds."""

    mean: float
    spread: float
    n: int


@dataclass(frozen=True)
class Contributions:
    """The baseline's mean validation score, and each item's gain over it.

    `noise` is None if there are too few trials; `measure` is the measure of a gain.
    """

    baseline: float
    gains: Mapping[Item, Gain]
    noise: Noise | None = None
    measure: str = ACCURACY


Key = tuple[Item | None, int]
"""An item (None: the baseline) and a seed."""

Pair = tuple[TrialOutcome, TrialOutcome]
"""A trial of an item, and of the baseline at the same seed."""


class ContributionTable:
    """An open table: the finished trials, and a method to add to it. See `open_table`."""

    def __init__(self, file: IO[str], trials: dict[Key, TrialOutcome], judge: Judge) -> None:
        self._file, self._judge = file, judge
        self.trials = trials

    def add(self, item: Item | None, seed: int, outcome: TrialOutcome) -> None:
        """Append a trial; it is on disk on return."""
        if (item, seed) in self.trials:
            raise FinetuneError(f"{self._file.name} has {_title(item)} with seed {seed} already")
        self.trials[item, seed] = outcome
        row: dict[str, Any] = {"item": None if item is None else asdict(item), "seed": seed}
        row |= {**self._judge.written(outcome.score), **asdict(outcome)}
        del row["score"]
        row["parts"] = [self._judge.sign * part for part in outcome.parts]
        if outcome.diverged:
            row["loss"] = None  # JSON has no NaN
        _append(self._file, row)


@contextmanager
def open_table(path: Path, header: Header) -> Iterator[ContributionTable]:
    """Open or create a table for appending; only one process at a time may.

    FinetuneError names the difference if the file has another header, or the damaged line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FinetuneError(f"another process is adding to {path}; wait for it") from error
        whole = _drop_torn_line(path)
        if whole:
            header_there, trials = read_table(path)
            _compare(path, header_there, {"schema": SCHEMA, **header})
        else:
            trials = {}
            _append(file, {"schema": SCHEMA, **header})
        yield ContributionTable(file, trials, judge_of(header))


def read_table(path: Path) -> tuple[Header, dict[Key, TrialOutcome]]:
    """Return the header and the trials of a table; a torn last line is ignored."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FinetuneError(
            f"contribution table {path} cannot be read: {reason_of(error)}"
        ) from error
    lines = text[: text.rfind("\n") + 1].splitlines()
    if not lines:
        raise FinetuneError(f"{path} is no contribution table: it is empty")
    header = _parse(path, 1, lines[0])
    if header.get("schema") != SCHEMA:
        raise FinetuneError(f"{path} is no contribution table of schema {SCHEMA}; measure again")
    judge = judge_of(header)
    trials: dict[Key, TrialOutcome] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            key, outcome = _trial(_parse(path, number, line), judge)
        except (FinetuneError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise FinetuneError(f"{path}, line {number} is no trial: {error}") from error
        if key in trials:
            raise FinetuneError(f"{path}, line {number}: {_title(key[0])} is there twice")
        trials[key] = outcome
    return header, trials


def judge_of(header: Header) -> Judge:
    """Return the judge of a table's trials."""
    return judge_named(str(header.get("judge", ACCURACY)))


def contributions_of(trials: Mapping[Key, TrialOutcome], measure: str = ACCURACY) -> Contributions:
    """Compare each item with the baseline at the same seed, by lower loss or better score.

    `measure` is LOSS, or the name of the judge whose scores these are.
    """
    base = {seed: outcome for (item, seed), outcome in trials.items() if item is None}
    if not base:
        raise FinetuneError("the table has no trial of the baseline yet; measure to the end")
    lost = [seed for seed, outcome in base.items() if outcome.diverged]
    if lost:
        raise FinetuneError(
            f"the baseline, the head alone, diverged with seed {lost[0]}; measure at a smaller "
            "rate, or look for NaN and infinity in the data"
        )
    pairs: dict[Item, list[Pair]] = {}
    for (item, seed), outcome in sorted(trials.items(), key=lambda entry: entry[0][1]):
        if item is not None and seed in base:
            pairs.setdefault(item, []).append((outcome, base[seed]))
    gains = {
        item: gain_of([_gain(*pair, measure) for pair in pairs[item]]) for item in sorted(pairs)
    }
    whole = [row for row in pairs.values() if len(row) == len(base)]
    noise = noise_of(_table(whole, measure))
    baseline = statistics.fmean(outcome.score for outcome in base.values())
    return Contributions(baseline, gains, noise, measure)


def _gain(outcome: TrialOutcome, base: TrialOutcome, measure: str) -> float:
    """Return the improvement over the baseline; a diverged trial counts as twice the baseline's
    loss.
    """
    if measure == LOSS:
        return -base.loss if outcome.diverged else base.loss - outcome.loss
    return outcome.score - base.score if math.isfinite(outcome.score) else -abs(base.score)


def _table(rows: Sequence[Sequence[Pair]], measure: str) -> list[list[list[float]]]:
    """Return gains [items, seeds, parts]; with one part unless all trials have equally many."""
    counts = {len(trial.parts) for row in rows for pair in row for trial in pair}
    if measure == LOSS or len(counts) != 1 or 0 in counts:
        return [[[_gain(*pair, measure)] for pair in row] for row in rows]
    return [
        [[a - b for a, b in zip(trial.parts, base.parts, strict=True)] for trial, base in row]
        for row in rows
    ]


def gain_of(differences: list[float]) -> Gain:
    """Return mean and standard deviation (0 for one) of differences."""
    spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
    return Gain(statistics.fmean(differences), spread, len(differences))


def _trial(row: Mapping[str, Any], judge: Judge) -> tuple[Key, TrialOutcome]:
    item = None if row["item"] is None else Item(**row["item"])
    diverged = row["diverged"]
    loss = math.nan if row["loss"] is None else float(row["loss"])
    score = judge.read(row)
    if not isinstance(row["seed"], int) or not isinstance(diverged, bool):
        raise ValueError("a field is out of its range")
    steps, seconds = int(row["steps"]), float(row["seconds"])
    parts = tuple(judge.read({judge.key: part}) for part in row.get("parts", ()))
    return (item, row["seed"]), TrialOutcome(
        score, loss, steps, seconds=seconds, diverged=diverged, parts=parts
    )


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FinetuneError(f"{path}, line {number} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise FinetuneError(f"{path}, line {number} is no JSON object")
    return row


def _compare(path: Path, found: Header, expected: Header) -> None:
    """Raise FinetuneError for trials of different models, data or recipes in one table."""
    plain = json.loads(json.dumps(expected))
    differing = [
        f"{name}: {found.get(name)} there, {plain.get(name)} now"
        for name in dict.fromkeys([*found, *plain])
        if found.get(name) != plain.get(name)
    ]
    if differing:
        raise FinetuneError(
            f"{path} was measured otherwise; give another file, or the same settings. "
            + "; ".join(differing)
        )


def _drop_torn_line(path: Path) -> int:
    """Truncate a torn last line left by a kill; return the remaining bytes."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return whole


def _append(file: IO[str], row: Mapping[str, Any]) -> None:
    file.write(json.dumps(row, allow_nan=False) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _title(item: Item | None) -> str:
    return "the baseline" if item is None else str(item)
