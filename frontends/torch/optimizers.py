"""PyTorch's optimizers, groups of parameters included, as ours, which have PyTorch's meaning.

The learning rate is given at each step. It is that of the first group; other groups keep their
ratio to it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import nn

from pockengine.compiler.optim import (
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Groups,
    Optimizer,
    RMSprop,
    Scaled,
    Sgd,
    Update,
)
from pockengine.errors import CompileError, ImportModelError

Settings = Mapping[str, Any]


class Absent:
    """What updates a parameter that PyTorch's optimizer was not given: nothing may."""

    def update(self, update: Update) -> NoReturn:
        """Raise CompileError."""
        raise CompileError(
            f"the optimizer was not given parameter {update.param.name}, which trains; give it "
            "all that trains, or freeze the parameter by the scheme"
        )


def to_optimizer(model: nn.Module, optimizer: Any) -> Optimizer:
    """Return our optimizer that does what this one of PyTorch does to the model's parameters.

    Raises ImportModelError for an optimizer, or a setting of it, that there is no equivalent for.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ImportModelError(
            f"{optimizer!r} is no optimizer; give one of torch.optim, of pockengine, or a name"
        )
    name = type(optimizer).__name__
    build = _BUILDERS.get(type(optimizer))
    if build is None:
        known = ", ".join(kind.__name__ for kind in _BUILDERS)
        raise ImportModelError(f"PyTorch's optimizer {name} has no equivalent; known are {known}")
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise ImportModelError(
            f"{name} has taken steps already, and its state is not taken over; give a fresh one"
        )
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    first = float(optimizer.param_groups[0]["lr"])
    rules: list[tuple[str, Optimizer]] = []
    for group in optimizer.param_groups:
        _check(name, group)
        rate = float(group["lr"])
        if not first > 0:
            raise ImportModelError(f"{name}: the first group's lr is {first}; give one above 0")
        chosen = build(group) if rate == first else Scaled(build(group), rate / first)
        for parameter in group["params"]:
            key = _escaped(names.get(id(parameter), ""))
            rules += [(key, chosen), (f"{key}.lora_[AB]", chosen)] if key else []
    return Groups(Absent(), tuple(rules))


REFUSED: Mapping[str, Any] = {
    "amsgrad": False,
    "centered": False,
    "dampening": 0,
    "initial_accumulator_value": 0,
    "maximize": False,
    "beta2_decay": -0.8,
}
"""Settings that must have these values."""


def _check(name: str, group: Settings) -> None:
    for setting, value in REFUSED.items():
        if group.get(setting, value) != value:
            raise ImportModelError(
                f"{name}({setting}={group[setting]}) is not supported; leave {setting} at {value}"
            )


def _escaped(name: str) -> str:
    """Return a pattern, as in a shell, that only this name matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _adam(group: Settings) -> Optimizer:
    kind = AdamW if group.get("decoupled_weight_decay") else Adam
    return kind(_floats(group["betas"]), float(group["eps"]), float(group["weight_decay"]))


def _floats(pair: Any) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def _adamw(group: Settings) -> Optimizer:
    return AdamW(_floats(group["betas"]), float(group["eps"]), float(group["weight_decay"]))


def _sgd(group: Settings) -> Optimizer:
    return Sgd(float(group["momentum"]), float(group["weight_decay"]), bool(group["nesterov"]))


def _rmsprop(group: Settings) -> Optimizer:
    fields = ("alpha", "eps", "weight_decay", "momentum")
    return RMSprop(**{field: float(group[field]) for field in fields})


def _adagrad(group: Settings) -> Optimizer:
    return Adagrad(**{field: float(group[field]) for field in ("lr_decay", "weight_decay", "eps")})


def _adafactor(group: Settings) -> Optimizer:
    first, second = group["eps"]
    settings = {"d": float(group["d"]), "weight_decay": float(group["weight_decay"])}
    least = torch.finfo(torch.float32).eps if first is None else float(first)
    return Adafactor(eps=(least, float(second)), **settings)


_BUILDERS: Mapping[type, Callable[[Settings], Optimizer]] = {
    torch.optim.Adafactor: _adafactor,
    torch.optim.Adagrad: _adagrad,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adamw,
    torch.optim.RMSprop: _rmsprop,
    torch.optim.SGD: _sgd,
}
