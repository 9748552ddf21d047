"""An optimizer that is a chain of transformations, as optax builds them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from pockengine.compiler.ir import Builder, Value
from pockengine.compiler.optim import Update
from pockengine.compiler.optim.base import Results

Before = Callable[[], Value]
"""Gives the step before a link, outside the kernel: for values that depend on all elements."""

Moved = tuple[Value, Sequence[Value]]
"""The step after a link, and the new contents of its states."""


class Link(ABC):
    """A transformation of the step, elementwise except for its scalars."""

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """Names of its states, with their initial values."""
        return ()

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return its inputs besides the step, the parameter and its states."""
        return ()

    @abstractmethod
    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """Return the next step; `inputs` are the scalars, then the states."""


@dataclass(frozen=True)
class OptaxChain:
    """A chain of links: the first receives the gradient, and the result is added to the params."""

    links: tuple[Link, ...]

    def update(self, update: Update) -> None:
        """Append the update as one kernel, after the reductions over all elements."""
        states = [
            [update.state(self._state(place, name), start=start) for name, start in link.states]
            for place, link in enumerate(self.links)
        ]
        scalars: list[Sequence[Value]] = []
        for place, link in enumerate(self.links):
            before = partial(self._before, update, place, scalars, states)
            scalars.append(link.scalars(update, before))
        counts = [len(each) for each in (*scalars, *states)]

        def formula(g: Builder, p: Value, u: Value, *inputs: Value) -> Results:
            values, total, moved = iter(inputs), len(self.links), list[Value]()
            parts = [[next(values) for _ in range(count)] for count in counts]
            for link, own, old in zip(self.links, parts[:total], parts[total:], strict=True):
                u, new = link.move(g, p, u, *own, *old)
                moved += new
            return g.add(p, u), *moved

        update.by_elements(formula, [*chain.from_iterable(scalars)], *chain.from_iterable(states))

    def _before(
        self,
        update: Update,
        place: int,
        scalars: Sequence[Sequence[Value]],
        states: Sequence[Sequence[Value]],
    ) -> Value:
        """Return the step before a link, recomputed for values that depend on all elements."""
        step = update.grad
        for link, own, old in zip(self.links[:place], scalars, states, strict=False):
            step, _ = link.move(update.g, update.part, step, *own, *old)
        return step

    def _state(self, place: int, name: str) -> str:
        """The name of a link's state, with the link's number where an earlier one has the same."""
        taken = {known for link in self.links[:place] for known, _ in link.states}
        return f"{name}{place}" if name in taken else name
