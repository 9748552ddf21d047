"""Evaluation and prediction over data: every row counts once, for any batch size."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pockengine.backends.session import Session
from pockengine.backends.training.batch import Batch, DataSource
from pockengine.backends.training.metrics import Metrics, Tally, tallies
from pockengine.backends.training.signature import Arrays, Signature
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import RuntimeFailure


@dataclass(frozen=True)
class Scores:
    """The mean loss over `rows` of the `of` available rows, and metrics over all of them.

    A padded batch has no separate loss of its own rows: with a fixed batch size the loss covers
    full batches only, and is None if there are none.
    """

    loss: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: int = 0
    of: int = 0

    def __repr__(self) -> str:
        figures = {**({} if self.loss is None else {LOSS: self.loss}), **self.metrics}
        shown = ", ".join(f"{name} {value:.5g}" for name, value in figures.items())
        return f"Scores: {shown or 'none'} (loss over {self.rows} of {self.of} rows)"


def evaluate(
    session: Session, signature: Signature, source: DataSource, metrics: Metrics = None
) -> Scores:
    """Evaluate data with the entry `evaluate`, without training."""
    known = signature.by_entry.get("predict", ())
    targets = [name for name in signature.reads("evaluate") if name not in known]
    counts: list[Tally] | None = None
    loss, rows, of = 0.0, 0, 0
    for batch in source.once():
        outputs = session.evaluate(_filled(signature, batch))
        by_row = _by_row(signature, batch, outputs)
        if counts is None:
            counts = tallies(metrics, by_row, targets)
        for tally in counts:
            tally.add(by_row, batch.inputs)
        if LOSS in outputs and batch.rows >= signature.smallest:
            loss += float(outputs[LOSS]) * batch.rows
            rows += batch.rows
        of += batch.rows
    if counts is None:
        raise RuntimeFailure("there is nothing to judge: the data are empty; give some rows")
    values = {tally.name: tally.result() for tally in counts}
    return Scores(loss / rows if rows else None, values, rows, of)


def predict(session: Session, signature: Signature, source: DataSource) -> Arrays:
    """Return the outputs of the entry `predict` for all rows, [N, ...] by name."""
    found: dict[str, list[np.ndarray]] = {}
    for batch in source.once():
        outputs = session.predict(_filled(signature, batch))
        by_row = _by_row(signature, batch, outputs)
        for name, array in outputs.items():
            parts = found.setdefault(name, [])
            if name not in by_row or (parts and parts[0].shape[1:] != array.shape[1:]):
                raise RuntimeFailure(
                    f"output {name} {list(array.shape)} cannot be joined by rows; run the batches "
                    "by session.predict"
                )
            parts.append(by_row[name])
    if not found:
        raise RuntimeFailure("there is nothing to predict: the data are empty; give some rows")
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _filled(signature: Signature, batch: Batch) -> Arrays:
    """Pad a short batch by repeating its last row."""
    missing = signature.smallest - batch.rows
    if missing <= 0 or not signature.even:
        return batch.inputs
    return {
        name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
        if array.ndim
        else array
        for name, array in batch.inputs.items()
    }


def _by_row(signature: Signature, batch: Batch, outputs: Arrays) -> Arrays:
    """Return the outputs that have one row per batch row, without the padding."""
    size = max(batch.rows, signature.smallest)
    return {
        name: array[: batch.rows]
        for name, array in outputs.items()
        if array.ndim and len(array) == size
    }
