"""PyTorch's optimizers, groups of parameters included, as ours, which have PyTorch's meaning.

The learning rate is an input of each step. It is that of the first group; other groups keep their
ratio to it, where a scheduler has changed the rates the one from before.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn

import torch
from torch import nn

from pockengine.compiler.optim import (
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Asgd,
    Groups,
    Maximize,
    Muon,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
    Scaled,
    Sgd,
    SparseAdam,
    Update,
)
from pockengine.errors import CompileError, ImportModelError

Settings = Mapping[str, Any]


class Absent:
    """The update of a parameter that PyTorch's optimizer does not have: none."""

    def update(self, update: Update) -> NoReturn:
        """Raise CompileError."""
        raise CompileError(
            f"the optimizer was not given parameter {update.param.name}, which trains; give it "
            "all that trains, or freeze the parameter by the scheme"
        )


def to_optimizer(model: nn.Module, optimizer: Any) -> Optimizer:
    """Return our optimizer that is equivalent to this one of PyTorch for the model's parameters.

    Raises ImportModelError for an optimizer, or a setting of it, without an equivalent.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ImportModelError(
            f"{optimizer!r} is no optimizer; give one of torch.optim, of pockengine, or a name"
        )
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ImportModelError(
            "LBFGS computes the loss as often as its line search asks for, a compiled step once; "
            "give Adam, or Rprop for whole batches"
        )
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        known = ", ".join(known.__name__ for known in _KINDS)
        place = f"{type(optimizer).__module__}.{name}"
        raise ImportModelError(f"{place} has no equivalent; known of torch.optim are {known}")
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise ImportModelError(
            f"{name} has taken steps already, and its state is not taken over; give a fresh one"
        )
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    first = _rate(optimizer.param_groups[0])
    rules: list[tuple[str, Optimizer]] = []
    for group in optimizer.param_groups:
        rate = _rate(group)
        if not first > 0:
            raise ImportModelError(f"{name}: the first group's lr is {first}; give one above 0")
        own = _own(kind, group)
        chosen = own if rate == first else Scaled(own, rate / first)
        for parameter in group["params"]:
            key = _escaped(names.get(id(parameter), ""))
            rules += [(key, chosen), (f"{key}.lora_[AB]", chosen)] if key else []
    return Groups(Absent(), tuple(rules))


def _rate(group: Settings) -> float:
    return float(group.get("initial_lr", group["lr"]))


def _escaped(name: str) -> str:
    """Return a pattern, as in a shell, that only this name matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _own(kind: type, group: Settings) -> Optimizer:
    """Return ours, whose settings have PyTorch's names; a default is None there."""
    chosen = AdamW if kind is Adam and group.get("decoupled_weight_decay") else kind
    defaults = {field.name: field.default for field in fields(chosen)}
    settings = {key: group[key] for key in defaults if group.get(key) is not None}
    optimizer: Optimizer = chosen(**{k: _like(defaults[k], value) for k, value in settings.items()})
    return Maximize(optimizer) if group.get("maximize") else optimizer


def _like(default: Any, value: Any) -> Any:
    """Return a setting as a plain number, or numbers, of its default's type."""
    if isinstance(default, tuple):
        pairs = zip(default, value, strict=True)
        return tuple(known if number is None else float(number) for known, number in pairs)
    return type(default)(value)


_KINDS: Mapping[type, type] = {
    torch.optim.ASGD: Asgd,
    torch.optim.Adadelta: Adadelta,
    torch.optim.Adafactor: Adafactor,
    torch.optim.Adagrad: Adagrad,
    torch.optim.Adam: Adam,
    torch.optim.AdamW: AdamW,
    torch.optim.Adamax: Adamax,
    torch.optim.NAdam: NAdam,
    torch.optim.RAdam: RAdam,
    torch.optim.RMSprop: RMSprop,
    torch.optim.Rprop: Rprop,
    torch.optim.SGD: Sgd,
    torch.optim.SparseAdam: SparseAdam,
    **({torch.optim.Muon: Muon} if hasattr(torch.optim, "Muon") else {}),  # since 2.9
}
