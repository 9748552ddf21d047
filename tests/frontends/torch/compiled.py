"""Helpers for tests of whole models: compare training in generated C with PyTorch's steps."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from pockengine.api import compile
from pockengine.backends.session import Session
from pockengine.compiled import Compiled
from pockengine.tests.frontends.torch.checks import check_state, sgd_losses

Batch = tuple[torch.Tensor, torch.Tensor | None]
"""An input, and its labels unless the model returns its loss."""
Batches = Sequence[Batch]


def check_steps(
    model: nn.Module, batches: Batches, lr: float, *, resume: bool, threads: int = 2
) -> None:
    """Compile a model and compare its steps; the loss is cross entropy if batches have labels."""
    compiled = compile(
        model, (batches[0][0],), loss=None if batches[0][1] is None else "cross_entropy"
    )
    compare_steps(compiled, model, batches, lr=lr, resume=resume, threads=threads)


def compare_steps(
    compiled: Compiled,
    model: nn.Module,
    batches: Batches,
    *,
    lr: float,
    resume: bool,
    threads: int = 2,
) -> None:
    """Train in generated code and with PyTorch: losses agree within 1e-4, weights within 1e-3.

    With `resume` each step starts from PyTorch's weights and statistics after the previous step,
    and the change of all weights together must agree with PyTorch's within 2 %.
    """
    torch.set_num_threads(1)  # PyTorch's threads spin: ten times slower on a busy machine
    reference = copy.deepcopy(model)
    with compiled.session(threads) as session:
        for x, y in batches:
            if resume:
                put_state(compiled, session, reference)
            before = weights_of(reference.state_dict(), model)
            inputs = {compiled.graph.inputs[0].name: x.numpy()}
            if y is not None:
                inputs["target"] = y.numpy()
            found = session.train_step(inputs, lr=lr)["loss"]
            (expected,) = sgd_losses(reference, loss_of, [(x, y)], lr)
            assert float(found) == pytest.approx(expected, rel=1e-4)
            state = compiled.state_dict(session)
            check_state(state, reference.state_dict())
            if resume:
                change = weights_of(reference.state_dict(), model) - before
                error = weights_of(state, model) - before - change
                assert float(error.norm()) <= 0.02 * float(change.norm())


def open_gates(model: nn.Module) -> None:
    """Set the bias of batch norms to 2, near the middle of ReLU6, so that rounding stays small."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.bias, 2.0)


def loss_of(outputs: Any, target: torch.Tensor | None) -> torch.Tensor:
    """Return a model's own loss, or the cross entropy of its logits."""
    if target is None:
        return outputs["loss"]
    return nn.functional.cross_entropy(outputs, target)


def weights_of(state: Mapping[str, torch.Tensor], model: nn.Module) -> torch.Tensor:
    """Copy all trained parameters into one vector that later steps do not change."""
    return torch.cat([state[name].flatten() for name, _ in model.named_parameters()])


def put_state(compiled: Compiled, session: Session, model: nn.Module) -> None:
    """Set every param of the session from the module."""
    state = model.state_dict()
    for name in session.artifact.params.keys() & compiled.graph.params.keys():
        array, order = state[name].numpy(), compiled.graph.params[name].permutation
        session.set_param(name, array if order is None else array.transpose(order).copy())
