"""What watches a training, and may end it."""

from pockengine.backends.session import Session
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step


class Callback:
    """Base of what is told of a training; `on_step` and `on_epoch` end it by returning True."""

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
