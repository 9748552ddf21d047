"""Metrics of predictions and targets, row by row.

A metric is a function `f(prediction, target)`, averaged over the rows, or an object with `update`,
`compute` and `reset`, as in torchmetrics. Metrics from PyTorch packages get tensors, all others
NumPy arrays.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.boundary import theirs
from pockengine.errors import RuntimeFailure

Metrics = Any
"""None, a metric, several of them, or a mapping by name."""
_TORCH = {"ignite", "torch", "torcheval", "torchmetrics"}


@dataclass(frozen=True)
class Metric:
    """A metric with the output and the target input that it compares.

    Both may be omitted if the model has one output, and one input that `predict` does not read.
    """

    judge: Any
    output: str | None = None
    target: str | None = None


class Tally:
    """Accumulator of one metric over many batches."""

    def __init__(self, metric: Metric, name: str, output: str, target: str) -> None:
        self.name, self._output, self._target = name, output, target
        self._judge, self._keeps = metric.judge, _keeps(metric.judge)
        if not self._keeps and not callable(metric.judge):
            raise RuntimeFailure(
                f"metric {name} is {type(metric.judge).__name__}; give a function of a prediction "
                "and a target, or an object with update, compute and reset"
            )
        self._convert = _tensor if _is_torch(metric.judge) else np.asarray
        self._values: list[tuple[float, int]] = []
        if self._keeps:
            self._judge.reset()

    def add(self, outputs: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> None:
        """Add the rows of a batch."""
        prediction, target = outputs[self._output], inputs[self._target]
        judge: Callable[[Any, Any], Any] = self._judge.update if self._keeps else self._judge
        value = theirs(judge, self._convert(prediction), self._convert(target))
        if not self._keeps:
            self._values.append((self._number(value), len(prediction)))

    def result(self) -> float:
        """Return the metric over all rows."""
        if self._keeps:
            return self._number(theirs(self._judge.compute))
        rows = sum(count for _, count in self._values)
        return math.fsum(value * count for value, count in self._values) / rows

    def _number(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise RuntimeFailure(
                f"metric {self.name} gives {type(value).__name__}; let it return a number"
            ) from error


def tallies(metrics: Metrics, outputs: Iterable[str], targets: Iterable[str]) -> list[Tally]:
    """Return an accumulator per metric; RuntimeFailure if a metric's operands are ambiguous."""
    by_name = metrics.items() if isinstance(metrics, Mapping) else _by_name(metrics)
    found = []
    for name, value in by_name:
        metric = value if isinstance(value, Metric) else Metric(value)
        output = _chosen(name, "output", metric.output, tuple(outputs))
        target = _chosen(name, "target", metric.target, tuple(targets))
        found.append(Tally(metric, name, output, target))
    return found


def _by_name(metrics: Any) -> list[tuple[str, Any]]:
    """Name metrics by function or class; equal names get numbers."""
    found: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    several = isinstance(metrics, Iterable) and not isinstance(metrics, str | np.ndarray)
    for metric in () if metrics is None else metrics if several else [metrics]:
        judge = metric.judge if isinstance(metric, Metric) else metric
        name = getattr(judge, "__name__", type(judge).__name__).strip("<>").lower()
        counts[name] += 1
        found[f"{name}_{counts[name]}" if counts[name] > 1 else name] = metric
    return list(found.items())


def _chosen(metric: str, kind: str, requested: str | None, known: tuple[str, ...]) -> str:
    """Return the operand of a metric: the given name, or the only one."""
    if requested in known or (requested is None and len(known) == 1):
        return requested or known[0]
    fact = f"there is no {requested}" if requested else "which one is meant is not clear"
    raise RuntimeFailure(
        f"metric {metric} needs one {kind} of {', '.join(known) or 'none'}, and {fact}; give "
        f"pockengine.Metric(judge, {kind}=...)"
    )


def _keeps(judge: Any) -> bool:
    """Whether a metric is an object that accumulates rows."""
    return all(callable(getattr(judge, name, None)) for name in ("update", "compute", "reset"))


def _is_torch(judge: Any) -> bool:
    """Whether a function or an object's class is from a PyTorch package."""
    kinds = (judge,) if hasattr(judge, "__name__") else type(judge).__mro__
    return any((kind.__module__ or "").partition(".")[0] in _TORCH for kind in kinds)


def _tensor(array: np.ndarray) -> Any:
    """Convert an array to a PyTorch tensor; such a metric implies that PyTorch is loaded."""
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(array))
