"""All unsupported features of one model, collected for a single error."""

from collections.abc import Iterable, Sequence

from pockengine.errors import ImportModelError

NO_RULE = "there is no rule for it; express it by other operators or leave it out of the module"

EMPTY = "a tensor without elements; leave out what computes with it"


MOST_NAMED = 5
"""Names that a message lists."""


class Problems:
    """Collects unsupported features, with their places in the user's model."""

    def __init__(self) -> None:
        """Start with none."""
        self._places: dict[tuple[str, str], list[str]] = {}

    def add(self, thing: str, reason: str, place: str) -> None:
        """Record that `thing` (an operator, a parameter) at this module path does not import."""
        self._places.setdefault((thing, reason), []).append(place or "the top level")

    def check(self, model: str) -> None:
        """Raise ImportModelError listing every kind of problem, if there is one."""
        if not self._places:
            return
        total = sum(len(places) for places in self._places.values())
        lines = [f"{model} cannot be imported: {total} unsupported operation{'s'[: total > 1]}"]
        for (thing, reason), places in sorted(self._places.items()):
            lines.append(f"  {len(places)} x {thing} in {_listed(places)}: {reason}")
        raise ImportModelError("\n".join(lines))


def _listed(places: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(places))


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
