"""What watches a training, and may end it."""

from typing import Any

from pockengine.backends.session import Session
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.errors import RuntimeFailure

EVENTS = ("on_begin", "wait", "on_step", "on_epoch", "on_end")


class Callback:
    """Base of what is told of a training; `on_step` and `on_epoch` end it by returning True."""

    @property
    def name(self) -> str:
        """What a history calls it."""
        return type(self).__name__

    def on_begin(self, session: Session) -> None:
        """Learn of the session, before its first step."""

    def wait(self) -> float:
        """Return for how many seconds the step that comes is to wait; asked again until it is 0.

        Checkpoints that are due lie behind it. What it raises ends the training, saved.
        """
        return 0.0

    def on_step(self, step: Step) -> bool | None:
        """Learn of a step that was made."""

    def on_epoch(self, epoch: Epoch) -> bool | None:
        """Learn of an epoch that ended, its validation included."""

    def on_end(self) -> None:
        """Learn that no more steps follow, whatever the reason."""


def as_callbacks(given: Any) -> tuple[Callback, ...]:
    """Return callbacks from one or several of them, or of objects with some of their methods."""
    if isinstance(given, Callback) or any(hasattr(given, event) for event in EVENTS):
        given = (given,)
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise RuntimeFailure(f"callbacks={given!r}: give a list of pockengine.Callback")
    return tuple(one if isinstance(one, Callback) else _Plain(one) for one in given)


class _Plain(Callback):
    """An object with some of a callback's methods."""

    def __init__(self, given: Any) -> None:
        self._given = given
        known = [event for event in EVENTS if callable(getattr(given, event, None))]
        if not known:
            raise RuntimeFailure(
                f"{type(given).__name__} is no callback; give it a method of {', '.join(EVENTS)}"
            )
        for event in known:
            setattr(self, event, getattr(given, event))

    @property
    def name(self) -> str:
        """What a history calls it."""
        return type(self._given).__name__
