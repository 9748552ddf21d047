"""Streams of batches: any iterable of dicts or tuples, or a function that returns one.

A stream defines its own order. To resume a training it is read again from its beginning, so a
repeatable stream resumes exactly.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pockengine.backends.augmentation import AS_THEY_ARE
from pockengine.backends.training.batch import Batch
from pockengine.backends.training.signature import Signature
from pockengine.boundary import theirs
from pockengine.errors import RuntimeFailure


@dataclass(frozen=True)
class BatchStream:
    """Batches for an entry; the last one of an epoch may be short, and training may drop it."""

    signature: Signature
    data: Iterable[Any] | Callable[[], Iterable[Any]]
    entry: str

    rows = 0
    batch = 0
    augmentation = AS_THEY_ARE
    shuffled = False

    @property
    def batches(self) -> int | None:
        """Batches of an epoch, from the data's length."""
        try:
            return len(self.data)  # type: ignore[arg-type]
        except TypeError:  # without a length, or infinite
            return None

    def training(self, seed: int, done: int, epochs: int | None) -> Iterator[Batch]:
        """Yield the training batches after the first `done`, to the end of the last epoch."""
        epoch = 0
        while epochs is None or epoch < epochs:
            ahead = None
            for batch in self._trained():
                if ahead is not None:
                    yield from _behind(done, ahead)
                    done = max(done - 1, 0)
                ahead = replace(batch, epoch=epoch)
            if ahead is None:
                raise self._nothing(epoch)
            yield from _behind(done, replace(ahead, last=True))
            done = max(done - 1, 0)
            epoch += 1

    def once(self) -> Iterator[Batch]:
        """Yield every row once and in order; the last batch may be short."""
        ahead = None
        for number, item in enumerate(self._items()):
            if ahead is not None:
                yield ahead
            ahead = self._batch(item, number)
        if ahead is not None:
            yield replace(ahead, last=True)

    def _items(self) -> Iterator[Any]:
        """Yield the items of the user's data; exceptions from it are the user's."""
        made = theirs(self.data) if callable(self.data) else self.data
        if not isinstance(made, Iterable):
            raise RuntimeFailure(
                f"the data's function returned {type(made).__name__}; return an iterable of batches"
            )
        items, end = theirs(iter, made), object()
        while (item := theirs(next, items, end)) is not end:
            yield item

    def _trained(self) -> Iterator[Batch]:
        """Yield the batches of an epoch, except a last one with too few rows for a step."""
        for batch in self.once():
            if batch.rows >= self.signature.smallest:
                yield batch
            elif not batch.last:
                raise RuntimeFailure(
                    f"a batch has {batch.rows} rows, and {self.signature.name} takes "
                    f"{self.signature.smallest}; only the last of an epoch may have fewer: make "
                    f"batches of {self.signature.smallest}, or compile for a pockengine.Range"
                )

    def _batch(self, item: Any, number: int) -> Batch:
        inputs = self.signature.named(item, self.entry)
        rows = set()
        for name, array in inputs.items():
            if self.signature.inputs[name].rank:
                self.signature.check(name, array)
                rows.add(len(array))
        if self.signature.even and (len(rows) != 1 or not 0 < min(rows) <= self.signature.batch):
            shown = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
            raise RuntimeFailure(
                f"batch {number} of the data is {shown}; {self.signature.name} takes "
                f"{self.signature.batch} rows of each, or fewer in the last batch"
            )
        return Batch(inputs, max(rows, default=1))

    def _nothing(self, epoch: int) -> RuntimeFailure:
        """Return the error for an epoch without a batch."""
        if epoch and isinstance(self.data, Iterator):
            return RuntimeFailure(
                f"the generator ended with epoch {epoch}, and epoch {epoch + 1} would begin; give "
                "a function that makes a new one, data=lambda: batches()"
            )
        return RuntimeFailure(
            f"the data have no batch of {self.signature.smallest} rows in epoch {epoch + 1}, "
            f"and {self.signature.name} trains on no smaller one; give more, or make batches of "
            f"{self.signature.smallest}"
        )


def _behind(done: int, batch: Batch) -> Iterator[Batch]:
    """Yield a batch unless it was trained on before."""
    if not done:
        yield batch
