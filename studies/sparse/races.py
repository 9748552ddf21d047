"""The races that chose schemes, and the result of each choice on the test part."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pockengine.finetune.candidates import FOUND
from pockengine.finetune.signal import ENOUGH
from pockengine.studies.sparse.figures import PairFigures, pairs_of
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.schemes import SEARCHED


@dataclass(frozen=True)
class Race:
    """A pair's race: each scheme's accuracies on validation by seed, the winner first.

    `reliabilities` are by measure, and `measure` is the measure that was searched by (None: none
    had signal). `tested`: the winner was evaluated on the test part.
    """

    pair: str
    schemes: tuple[str, ...]
    accuracies: tuple[tuple[float, ...], ...]
    measure: str | None
    reliabilities: Mapping[str, float | None]
    tested: bool

    @property
    def best_preset(self) -> int | None:
        """Index of the preset that was best in validation."""
        places = [place for place, name in enumerate(self.schemes) if not name.startswith(FOUND)]
        return places[0] if places else None


def races_of(journal: Journal) -> list[Race]:
    """Return every pair's last race, in the plan's order."""
    races = {}
    for key, result in journal.entries(kind="race"):
        races[key["pair"]] = Race(
            key["pair"],
            tuple(result["schemes"]),
            tuple(tuple(each) for each in result["accuracies"]),
            result["measure"],
            result["reliabilities"],
            any(
                run["rules"] in key["rules"]
                for run, _ in journal.entries(
                    kind="trial", purpose="final", pair=key["pair"], scheme=SEARCHED
                )
            ),
        )
    return [races[pair] for pair in pairs_of(journal) if pair in races]


@dataclass(frozen=True)
class Beside:
    """The searched scheme compared with its race's best preset in test, in points, by seed.

    `noise` is the standard error of the difference of means, with the same seeds for both.
    """

    pair: str
    preset: str
    points: float
    noise: float


def beside_presets(figures: Sequence[PairFigures], races: Sequence[Race]) -> list[Beside]:
    """Compare each searched scheme with the best of the presets that fit the budget."""
    raced = {race.pair: race.schemes for race in races if race.tested}
    rows = []
    for one in figures:
        ours = one.row(SEARCHED)
        presets = [row for row in one.rows if row.scheme in raced.get(one.pair, ())]
        if ours is None or not presets:
            continue
        best = max(presets, key=lambda row: row.mean)
        pairs = zip(ours.accuracies, best.accuracies, strict=False)
        differences = [100 * (a - b) for a, b in pairs]
        spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
        points, noise = statistics.fmean(differences), spread / len(differences) ** 0.5
        rows.append(Beside(one.pair, best.scheme, points, noise))
    return rows


def race_section(races: Sequence[Race], figures: Sequence[PairFigures]) -> str:
    """Describe the candidates of each race, and its winner compared with the best preset."""
    if not races:
        return ""
    compared = beside_presets(figures, races)
    parts = ["## The races", _signals(races), *([_beside(compared)] if compared else [])]
    return "\n\n".join(parts)


def _signals(races: Sequence[Race]) -> str:
    lines = [
        "The searched schemes and the presets within the budget train in full at every rate, and "
        "the better half goes on to twice the seeds. The reliability of probes is the share of the "
        f"variance of measured gains that is not chance; below {ENOUGH:.0%} the next measure is "
        "taken. Accuracies are of what judges: the validation part, and more where a pair says so.",
        "",
        "| pair | reliability by accuracy | by loss | searched by | schemes | the winner | % "
        "| the best preset | % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in races:
        reliabilities = [_share(one.reliabilities, measure) for measure in ("accuracy", "loss")]
        cells = [one.pair, *reliabilities, one.measure or "none", str(len(one.schemes))]
        for place in (0, one.best_preset):
            cells += ["", ""] if place is None else [one.schemes[place], _mean(one, place)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(reliabilities: Mapping[str, float | None], measure: str) -> str:
    value = reliabilities.get(measure)
    return "" if value is None else f"{value:.2f}"


def _mean(race: Race, place: int) -> str:
    return f"{100 * statistics.fmean(race.accuracies[place]):.1f}"


def _beside(rows: Sequence[Beside]) -> str:
    below = [one.pair for one in rows if one.points < -2 * one.noise and one.points < 0]
    lines = [
        "Beside the preset of the race that tests best (which the race cannot know), in points of "
        "the test part; the noise is the standard error over the seeds. Below it by more than "
        f"twice the noise: {', '.join(below) or 'none'}.",
        "",
        "| pair | that preset | searched against it | noise |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one.pair} | {one.preset} | {one.points:+.1f} | {one.noise:.1f} |" for one in rows
    ]
    return "\n".join(lines)
