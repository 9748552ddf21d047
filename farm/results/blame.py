"""Find the commit since which a figure has its present value, from stored records."""

from collections.abc import Sequence

from pockengine.farm.results.commits import commits_between, history
from pockengine.farm.results.regression import Blame, Change, Comparison, compare_records, figure_of
from pockengine.farm.results.results import Record

MOVED = (Change.WORSE, Change.BETTER)


def blame(one: Comparison, stored: Sequence[Record], revision: str) -> Blame | None:
    """Walk from a run of `revision` back to its baseline; None for a figure that has not moved.

    A commit without a verdict, such as one measured on a busy machine, is ignored.
    """
    if one.change not in MOVED or one.baseline is None:
        return None
    own, last = one.record.commit, one.baseline.commit
    name = figure_of(one.record)
    same = [record for record in stored if figure_of(record) == name]
    baseline = [record for record in same if record.commit == last]
    first, tip = own, revision
    for commit in history(f"{last}..{revision}"):
        there = [record for record in same if record.commit == commit != own]
        changes = {earlier.change for earlier in compare_records(there, baseline)}
        if changes == {one.change}:
            first = tip = commit
        elif changes & {Change.SAME, *MOVED}:
            last = commit
            break
    between = [commit for commit in commits_between(last, tip) if commit != first]
    return Blame(first, last, len(between))
