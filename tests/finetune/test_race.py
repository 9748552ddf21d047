"""The race: the best scheme wins, even if it is a preset; better schemes get more seeds."""

from collections import defaultdict
from random import Random

import pytest

from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FULL
from pockengine.errors import FinetuneError
from pockengine.finetune.race import Runs, race
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.trial import TrialOutcome

RATES, SEEDS = (0.1, 0.4), (0, 1, 2, 3)
FOUND = [Scheme(f"found {place}", ((f"layers.{place}", FULL),)) for place in range(6)]
SPARSE, HEAD = (Scheme(name, ((name, FULL),)) for name in ("sparse", "head-only"))
EPOCHS = 4


class Track:
    """Fake trainings with known true accuracy; a scheme's better rate adds 0.1."""

    def __init__(self, truth: dict[Scheme, float], noise: float = 0.0) -> None:
        self.truth, self.noise = truth, noise
        self.seeds: defaultdict[Scheme, set[int]] = defaultdict(set)
        self.runs: list[tuple[Scheme, Recipe]] = []

    def __call__(self, runs: Runs) -> list[TrialOutcome]:
        return [self._train(scheme, recipe) for scheme, recipe in runs]

    def _train(self, scheme: Scheme, recipe: Recipe) -> TrialOutcome:
        self.runs.append((scheme, recipe))
        assert recipe.epochs == EPOCHS
        self.seeds[scheme].add(recipe.seed)
        chance = Random(f"{scheme.name} {recipe.seed} {recipe.epochs}").gauss(0, self.noise)
        better = recipe.rate == RATES[len(scheme.name) % 2]
        accuracy = self.truth[scheme] + 0.1 * better + chance
        return TrialOutcome(accuracy, 0.5, 1, 0.1, diverged=self.truth[scheme] < 0)


def run_race(track: Track) -> list[str]:
    presets = [scheme for scheme in (SPARSE, HEAD) if scheme in track.truth]
    standings = race(list(track.truth), presets, Recipe(9.0, EPOCHS), RATES, SEEDS, track)
    return [standing.scheme.name for standing in standings]


def found(*accuracies: float) -> dict[Scheme, float]:
    return dict(zip(FOUND, accuracies, strict=False))


def test_best_scheme_wins_at_its_best_rate_with_all_seeds() -> None:
    track = Track({**found(0.3, 0.5, 0.4, 0.35, 0.2, 0.1), SPARSE: 0.45, HEAD: 0.3}, noise=0.01)
    standings = race(list(track.truth), (SPARSE, HEAD), Recipe(9.0, EPOCHS), RATES, SEEDS, track)
    best = standings[0]
    assert best.scheme == FOUND[1]
    assert best.recipe == Recipe(RATES[len(FOUND[1].name) % 2], EPOCHS)
    assert len(best.scores) == len(SEEDS)
    assert best.mean == pytest.approx(0.6, abs=0.02)
    assert 0 < best.spread < 0.05


def test_best_preset_is_selected() -> None:
    assert run_race(Track({**found(0.3, 0.31, 0.32), HEAD: 0.1, SPARSE: 0.4}))[0] == "sparse"


@pytest.mark.parametrize("seed", range(5))
def test_winner_is_at_least_the_best_preset_on_the_same_seeds(seed: int) -> None:
    random = Random(seed)
    truth = {scheme: random.uniform(0.3, 0.34) for scheme in (*FOUND, SPARSE, HEAD)}
    track = Track(truth, noise=0.05)
    standings = race(list(truth), (SPARSE, HEAD), Recipe(9.0, EPOCHS), RATES, SEEDS, track)
    last = {one.scheme: one.mean for one in standings if len(one.scores) == len(SEEDS)}
    assert {SPARSE, HEAD} & set(last)
    assert last[standings[0].scheme] == max(last.values())


def test_half_of_the_schemes_continue_with_twice_the_seeds() -> None:
    track = Track(found(0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    names = run_race(track)

    assert names == [scheme.name for scheme in FOUND[::-1]]
    assert [len(track.seeds[scheme]) for scheme in FOUND[::-1]] == [4, 4, 2, 1, 1, 1]
    assert len(track.runs) == len(FOUND) * len(RATES) + 2 * 3 + 1, "rates are the first seed's"


def test_best_preset_runs_to_the_end_even_if_last() -> None:
    track = Track({**found(0.3, 0.4, 0.5, 0.6), SPARSE: 0.2, HEAD: 0.1})
    run_race(track)

    assert track.seeds[SPARSE] == set(SEEDS)
    assert track.seeds[HEAD] == set(SEEDS[:1])


def test_schemes_that_diverge_at_every_rate_do_not_run() -> None:
    track = Track(found(-1.0, 0.2))
    assert run_race(track) == [FOUND[1].name]
    assert track.seeds[FOUND[0]] == set(SEEDS[:1])

    with pytest.raises(FinetuneError, match=r"found 0: each diverges at every rate \(0.1, 0.4\)"):
        run_race(Track(found(-1.0)))


def test_trainings_that_diverge_later_rank_last() -> None:
    """A diverged trial that is judged by its loss has an infinite loss."""

    def run(runs: Runs) -> list[TrialOutcome]:
        lost = [scheme is FOUND[0] and recipe.seed > 0 for scheme, recipe in runs]
        scores = {FOUND[0]: -1.0, FOUND[1]: -2.0, FOUND[2]: -3.0}
        return [
            TrialOutcome(float("-inf") if gone else scores[scheme], 1.0, 1, 0.1, gone)
            for gone, (scheme, _) in zip(lost, runs, strict=True)
        ]

    standings = race(FOUND[:3], (), Recipe(9.0, EPOCHS), RATES, (0, 1), run)
    assert [one.scheme for one in standings] == [FOUND[1], FOUND[0], FOUND[2]]
    assert standings[1].spread == 0
