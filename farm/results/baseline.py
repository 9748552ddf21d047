"""Choose the stored records that are a run's baseline."""

from collections.abc import Sequence

from pockengine.errors import FarmError
from pockengine.farm.results.regression import OURS, Key, figure_of, place_of
from pockengine.farm.results.results import Record


def baseline_of(
    current: Sequence[Record], stored: Sequence[Record], commits: Sequence[str]
) -> list[Record]:
    """Return the baseline of a run's figures; `commits` are the candidates, newest first.

    A figure is taken from the newest commit with a valid record of it: a partial run, or one on a
    busy machine, does not hide earlier records. A figure that the run lacks is missing only if the
    newest commit of its model and scheme has it. FarmError when no commit has a record.
    """
    age = {commit: place for place, commit in enumerate(commits)}
    known = [record for record in stored if record.commit in age]
    if not known:
        raise without_records(len(commits))
    of_figure: dict[Key, tuple[bool, int]] = {}
    of_place: dict[Key, int] = {}
    for record in known:
        if record.engine == OURS:
            figure, place, own = figure_of(record), place_of(record), age[record.commit]
            rank = (record.busy or not record.ok, own)
            of_figure[figure] = min(of_figure.get(figure, rank), rank)
            of_place[place] = min(of_place.get(place, own), own)
    measured = {figure_of(record) for record in current}

    def counts(record: Record) -> bool:
        figure = figure_of(record)
        if figure in measured and figure in of_figure:
            return age[record.commit] == of_figure[figure][1]
        return age[record.commit] == of_place.get(place_of(record))

    return [record for record in known if counts(record)]


def without_records(commits: int) -> FarmError:
    """Return the error of a baseline none of whose commits has a record."""
    return FarmError(
        f"no stored record of the last {commits} commits of the baseline; run the bench there "
        f"first, with a clean checkout, into the same database"
    )
