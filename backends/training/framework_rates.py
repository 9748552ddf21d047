"""Learning-rate schedules of PyTorch, Keras and optax.

They are evaluated on the host, once per update, as in the framework's own training: a PyTorch
schedule is stepped after each update, those of Keras and optax count updates from 0. They are
recognized by class, so no framework is imported.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np

from pockengine.backends.training.loop import Rates
from pockengine.errors import RuntimeFailure

LR = "lr"


@runtime_checkable
class Scheduler(Protocol):
    """Interface of a schedule of torch.optim.lr_scheduler."""

    def get_last_lr(self) -> Any:
        """Return the rates of the optimizer's groups."""


def as_rates(schedule: Any) -> Any:
    """Convert a framework's schedule to a function of the update number; return others
    unchanged.
    """
    if hasattr(schedule, "get_last_lr") and hasattr(schedule, "optimizer"):
        return _of_torch(schedule)
    if any(kind.__name__ == "LearningRateSchedule" for kind in type(schedule).__mro__):
        return _counted(schedule, int)
    if callable(schedule) and str(getattr(schedule, "__module__", "")).partition(".")[0] == "optax":
        numpy = import_module("jax.numpy")  # a dependency of optax
        return _counted(schedule, lambda count: numpy.asarray(count, numpy.int32))
    return schedule


def _counted(schedule: Callable[[Any], Any], count: Callable[[int], Any]) -> Rates:
    """Return the rates of a schedule that counts updates from 0."""
    return lambda number: float(np.asarray(schedule(count(number - 1))))


def _of_torch(scheduler: Any) -> Rates:
    """Return the rates of a copy of a scheduler, from its present state."""
    name = type(scheduler).__name__
    if hasattr(scheduler, "num_bad_epochs"):
        raise RuntimeFailure(
            f"{name} follows a validation loss, which comes after an epoch; make the steps by "
            "session.train_step(inputs, lr), and step the scheduler between them"
        )
    rates: list[float] = []
    steps = _stepped(name, _copy(scheduler))

    def rate(number: int) -> float:
        while len(rates) < number:
            rates.append(next(steps))
        return rates[number - 1]

    rate(2)  # fails at once if more than the rate changes
    return rate


def _copy(scheduler: Any) -> Any:
    """Copy a scheduler and its optimizer, without copying trained tensors."""
    optimizer = scheduler.optimizer
    tensors = [p for group in optimizer.param_groups for p in group["params"]]
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if hasattr(value, "detach")]
    return copy.deepcopy(scheduler, {id(tensor): tensor for tensor in tensors})


def _stepped(name: str, scheduler: Any) -> Iterator[float]:
    """Yield the first group's rate at each update; RuntimeFailure if anything else changes.

    Other groups must keep their ratio to it, which `compile` has fixed.
    """
    groups = scheduler.optimizer.param_groups
    begun = [_settings(group) for group in groups]
    ratios = np.array([float(group.get("initial_lr", group[LR])) for group in groups])
    while True:
        rates = np.array([float(group[LR]) for group in groups])
        if not np.allclose(rates * ratios[0], rates[0] * ratios, rtol=1e-6, atol=0):
            raise RuntimeFailure(
                f"{name} changes the rates of the optimizer's groups by different factors; they "
                "keep the ratios that they were compiled with: give one schedule for all"
            )
        changed = _changed(begun, [_settings(group) for group in groups])
        if changed:
            raise RuntimeFailure(
                f"{name} changes {', '.join(changed)} beside the rate, and an optimizer's "
                "settings are compiled in; give it cycle_momentum=False"
            )
        yield float(rates[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the copied optimizer makes no steps
            scheduler.step()


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in group.items()
        if key not in (LR, "params") and isinstance(value, int | float | tuple | list)
    }


def _changed(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    pairs = zip(before, after, strict=True)
    return list(dict.fromkeys(k for one, other in pairs for k in one if one[k] != other[k]))
