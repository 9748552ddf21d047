"""Training callbacks, which may also stop a training."""

from typing import Any

from pockengine.backends.session import Session
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.errors import RuntimeFailure

EVENTS = ("on_begin", "wait", "on_step", "on_epoch", "on_end")


class Callback:
    """Base class of training callbacks; `on_step` and `on_epoch` stop a training by returning
    True.
    """

    @property
    def name(self) -> str:
        """Name in the history."""
        return type(self).__name__

    def on_begin(self, session: Session) -> None:
        """Called with the session, before its first step."""

    def wait(self) -> float:
        """Return the seconds to wait before the next step; called again until it returns 0.

        Due checkpoints are already written. An exception ends the training after saving it.
        """
        return 0.0

    def on_step(self, step: Step) -> bool | None:
        """Called after each step."""

    def on_epoch(self, epoch: Epoch) -> bool | None:
        """Called after each epoch, including its validation."""

    def on_end(self) -> None:
        """Called when no more steps follow, for any reason."""


def as_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Return a list of callbacks from one or several, or from objects with some of their
    methods.
    """
    if isinstance(callbacks, Callback) or any(hasattr(callbacks, event) for event in EVENTS):
        callbacks = (callbacks,)
    if isinstance(callbacks, str) or not hasattr(callbacks, "__iter__"):
        raise RuntimeFailure(f"callbacks={callbacks!r}: give a list of pockengine.Callback")
    return tuple(one if isinstance(one, Callback) else _Plain(one) for one in callbacks)


class _Plain(Callback):
    """Adapter of an object with some of a callback's methods."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        known = [event for event in EVENTS if callable(getattr(wrapped, event, None))]
        if not known:
            raise RuntimeFailure(
                f"{type(wrapped).__name__} is no callback; give it a method of {', '.join(EVENTS)}"
            )
        for event in known:
            setattr(self, event, getattr(wrapped, event))

    @property
    def name(self) -> str:
        """Name in the history."""
        return type(self._wrapped).__name__
