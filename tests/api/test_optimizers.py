"""PyTorch optimizers, and optimizer names, as arguments of `pockengine.compile`."""

import copy
import inspect
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pockengine
from pockengine.backends.training.framework_rates import as_rates
from pockengine.compiler.optim.groups import Groups
from pockengine.errors import PockEngineError, RuntimeFailure
from pockengine.frontends.torch import optimizers
from pockengine.frontends.torch.optimizers import to_optimizer
from pockengine.tests.backends.every import EVERY_BACKEND
from pockengine.tests.frontends.torch.checks import check_state

NUMBERS = torch.Generator().manual_seed(0)
X, Y = torch.randn(5, 4, generator=NUMBERS), torch.randint(3, (5,), generator=NUMBERS)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def grouped(model: nn.Sequential) -> torch.optim.Optimizer:
    options = {"params": model[2].parameters(), "lr": 0.05, "momentum": 0.0}
    first = {"params": model[0].parameters(), "weight_decay": 0.1}
    return torch.optim.SGD([first, options], lr=0.01, momentum=0.9, nesterov=False)


def mixed(model: nn.Sequential) -> torch.optim.Optimizer:
    """Return an optimizer with different options for each layer."""
    options = {"params": model[2].parameters(), "decoupled_weight_decay": True, "lr": 0.02}
    groups = [{"params": model[0].parameters(), "weight_decay": 0.1, "maximize": True}, options]
    return torch.optim.RAdam(groups, lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)


Maker = Callable[[nn.Sequential], torch.optim.Optimizer]
MAKERS: dict[str, Maker] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), 0.01, 0.9, weight_decay=0.1, nesterov=True),
    "groups": grouped,
    "adam": lambda m: torch.optim.Adam(m.parameters(), 0.01, (0.8, 0.9), 1e-6, 0.1),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), 0.01),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), 0.01, momentum=0.5),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), 0.01, lr_decay=0.1),
    "adafactor": lambda m: torch.optim.Adafactor(m.parameters(), 0.01, beta2_decay=-0.5),
    "dampening": lambda m: torch.optim.SGD(m.parameters(), 0.01, 0.9, 0.5, maximize=True),
    "amsgrad": lambda m: torch.optim.AdamW(m.parameters(), 0.01, amsgrad=True),
    "mixed": mixed,
}


@EVERY_BACKEND
@pytest.mark.parametrize("name", MAKERS)
def test_pytorch_optimizer_steps_equal_pytorch(name: str, device: Path | str) -> None:
    model = net()
    twin = copy.deepcopy(model)
    compiled = pockengine.compile(
        model, (X,), loss="cross_entropy", optimizer=MAKERS[name](model), device=device
    )
    optimizer = MAKERS[name](twin)
    with compiled.session() as session:
        for _ in range(3):
            session.train_step({"input": X.numpy(), "target": Y.numpy()}, lr=0.01)
            optimizer.zero_grad()
            nn.functional.cross_entropy(twin(X), Y).backward()
            optimizer.step()
        check_state(compiled.state_dict(session), twin.state_dict())


class Unknown(torch.optim.SGD):
    """A subclass, which may override anything."""


def stepped(model: nn.Sequential) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model.parameters())
    model(X).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: torch.optim.SGD(m[0].parameters(), 0.1), "not given parameter 2.weight"),
        (lambda m: torch.optim.LBFGS(m.parameters()), "LBFGS computes the loss as often as"),
        (
            lambda m: Unknown(m.parameters()),
            f"{__name__}.Unknown has no equivalent; known of torch.optim are ASGD",
        ),
        (stepped, "Adam has taken steps already"),
        (lambda m: torch.optim.Adam, "is no optimizer"),
        (lambda m: 3, "is no optimizer"),
        (lambda m: "adma", "unknown optimizer 'adma'; known are adadelta"),
    ],
)
def test_unsupported_optimizers_are_reported(
    make: Callable[[nn.Sequential], Any], words: str
) -> None:
    model = net()
    with pytest.raises(PockEngineError, match=words):
        pockengine.compile(model, (X,), loss="cross_entropy", optimizer=make(model))


OWN = {
    "Adadelta": pockengine.Adadelta(0.8, 1e-5, 0.1),
    "Adagrad": pockengine.Adagrad(0.1, 0.2, 1e-5, 0.3),
    "Adamax": pockengine.Adamax((0.8, 0.9), 1e-5, 0.1),
    "ASGD": pockengine.Asgd(0.1, 0.5, 3.0, 0.1),
    "Muon": pockengine.Muon(0.2, 0.8, False, (3.0, -4.0, 2.0), 1e-5, 3, "match_rms_adamw"),
    "NAdam": pockengine.NAdam((0.8, 0.9), 1e-5, 0.1, 0.2, True),
    "RMSprop": pockengine.RMSprop(0.8, 1e-5, 0.1, 0.7, True),
    "Rprop": pockengine.Rprop((0.4, 1.3), (0.1, 2.0)),
    "SparseAdam": pockengine.SparseAdam((0.8, 0.9), 1e-5),
}


@pytest.mark.parametrize("name", [name for name in OWN if hasattr(torch.optim, name)])
def test_every_setting_is_converted(name: str) -> None:
    model = nn.Linear(3, 2, bias=False)
    own, kind = OWN[name], getattr(torch.optim, name)
    known = inspect.signature(kind).parameters
    optimizer = kind(
        model.parameters(), **{key: value for key, value in vars(own).items() if key in known}
    )
    found = to_optimizer(model, optimizer)
    assert isinstance(found, Groups)
    assert found.rules[0] == ("weight", own)


def test_name_means_the_defaults() -> None:
    def program(optimizer: object) -> str:
        compiled = pockengine.compile(net(), (X,), loss="cross_entropy", optimizer=optimizer)
        return str(compiled.program.entries["train"].graph)

    assert program("AdamW") == program(pockengine.AdamW())


UPDATES = 12
Schedules = torch.optim.lr_scheduler
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: Schedules.StepLR(o, 3, 0.5),
    "cosine": lambda o: Schedules.CosineAnnealingLR(o, UPDATES),
    "warm-up from 0": lambda o: Schedules.LambdaLR(o, lambda n: min(n / 4, 1.0)),
    "one cycle": lambda o: Schedules.OneCycleLR(o, 0.1, UPDATES, cycle_momentum=False),
    "one after another": lambda o: Schedules.SequentialLR(
        o, [Schedules.LinearLR(o, 0.1, total_iters=4), Schedules.ExponentialLR(o, 0.9)], [4]
    ),
    "two at once": lambda o: Schedules.ChainedScheduler(
        [Schedules.ConstantLR(o, 0.5, 3), Schedules.MultiStepLR(o, [5, 8])]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_pytorch_schedule_has_pytorchs_rates(name: str) -> None:
    optimizer = torch.optim.SGD(net().parameters(), 0.05)
    schedule = SCHEDULES[name](optimizer)
    rates = as_rates(schedule)
    ours = [rates(number) for number in (*range(1, UPDATES + 1), 3)]
    theirs = []
    for _ in range(UPDATES):
        theirs.append(schedule.get_last_lr()[0])  # `as_rates` has not advanced it
        optimizer.step()
        schedule.step()

    assert ours == [*theirs, theirs[2]]


def test_training_with_a_pytorch_schedule_equals_pytorch() -> None:
    model = net()
    twin = copy.deepcopy(model)
    own, its = grouped(model), grouped(twin)
    own_schedule, its_schedule = map(SCHEDULES["one after another"], (own, its))
    compiled = pockengine.compile(model, (X,), loss="cross_entropy", optimizer=own)
    rows = {"input": X.repeat(UPDATES, 1).numpy(), "target": Y.repeat(UPDATES).numpy()}

    compiled.fit(rows, epochs=1, lr=own_schedule, shuffle=False)

    for _ in range(UPDATES):
        its.zero_grad()
        nn.functional.cross_entropy(twin(X), Y).backward()
        its.step()
        its_schedule.step()
    check_state(compiled.state_dict(), twin.state_dict())


def test_schedules_without_an_equivalent_are_refused() -> None:
    optimizer = torch.optim.SGD(net().parameters(), 0.05, momentum=0.9)
    with pytest.raises(RuntimeFailure, match=r"changes momentum .* cycle_momentum=False"):
        as_rates(Schedules.OneCycleLR(optimizer, 0.1, UPDATES))
    with pytest.raises(RuntimeFailure, match="follows a validation loss"):
        as_rates(Schedules.ReduceLROnPlateau(optimizer))
    with pytest.raises(RuntimeFailure, match="by different factors"):
        as_rates(Schedules.LambdaLR(grouped(net()), [lambda n: 1.0, lambda n: 0.5**n]))


def test_a_release_without_muon_has_the_other_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    kinds = runpy.run_path(optimizers.__file__)["_KINDS"]
    assert {torch.optim.SGD, torch.optim.AdamW} < set(kinds)
