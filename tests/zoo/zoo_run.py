"""Import, compile and train one model of the zoo in the oracle, and compare with PyTorch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.torch.decisions import copied_module
from pockengine.frontends.torch.model import from_torch, to_state_dict
from pockengine.tests.zoo.zoo_cases import Case

STEPS, RATE = 3, 0.02
LOSS_TOLERANCE = 1e-4
"""Relative, for each loss."""
CHANGE_TOLERANCE = 0.02
"""Error of a trained tensor relative to its own change, or a thousandth of the largest change."""

State = Mapping[str, torch.Tensor]


def compared(case: Case) -> str:
    """Return the differences from PyTorch's training, empty if there are none.

    Each step starts from PyTorch's weights, so that rounding errors do not accumulate.
    """
    graph = from_torch(copied_module(case.module), dict(case.inputs), loss=case.loss)
    step = compile_program(graph, Training(optimizer=Sgd())).entries["train"].graph
    module = copied_module(case.module)
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for number in range(STEPS):
        before = _copy(module)
        loss, values = _step(graph, step, before, case, number)
        with _drawing(_dropped(graph, number)):
            expected = _reference(module, optimizer, case)
        if not np.isclose(loss, expected, rtol=LOSS_TOLERANCE, atol=1e-6):
            return f"step {number + 1}: the loss is {loss}, PyTorch's {expected}"
        words = _wrong_changes(before, module.state_dict(), values)
        if words:
            return f"step {number + 1}: {words}"
    return ""


def _copy(module: torch.nn.Module) -> State:
    return {name: value.clone() for name, value in module.state_dict().items()}


def _step(graph: Graph, step: Graph, state: State, case: Case, seed: int) -> tuple[float, State]:
    """Return the loss of one compiled step from PyTorch's weights, and the new weights."""
    params = {name: param.data.copy() for name, param in step.params.items()}
    for name in params:
        if name in graph.params and name in state:
            order = graph.params[name].permutation
            array = state[name].numpy()
            params[name] = (array if order is None else array.transpose(order)).copy()
    feed = {name: value.numpy() for name, value in case.inputs.items()}
    if case.target is not None:
        feed["target"] = case.target.numpy()
    feed["lr"], feed["seed"] = np.asarray(RATE, np.float32), np.asarray(seed, np.int32)
    names = {value.name for value in step.inputs}
    arrays = {name: array for name, array in feed.items() if name in names}
    loss = float(run(step, arrays, params)["loss"])
    used = {name: data for name, data in params.items() if name in graph.params}
    return loss, to_state_dict(graph, used, case.module)


def _dropped(graph: Graph, seed: int) -> list[torch.Tensor]:
    """Return the random numbers with which PyTorch drops the same paths as our step with this seed.

    Stochastic depth rounds 1 - p + rand() down, so 0 drops and a number near 1 keeps.
    """
    nodes = [node for node in graph.nodes if node.op == "dropout"]
    drawn = (
        lookup("dropout").eval((np.ones(node.result.shape, np.float32), np.int32(seed)), node.attrs)
        for node in nodes
    )
    return [torch.from_numpy((keep > 0) * np.float32(1 - 2**-20)) for (keep,) in drawn]


@contextmanager
def _drawing(numbers: list[torch.Tensor]) -> Iterator[None]:
    """Make `torch.rand` return these numbers, and require that all of them are used."""
    left = iter(numbers)

    def rand(shape: Any, **_: Any) -> torch.Tensor:
        return next(left).reshape(shape)

    with patch.object(torch, "rand", rand):
        yield
    assert next(left, None) is None


def _reference(module: torch.nn.Module, optimizer: torch.optim.SGD, case: Case) -> float:
    optimizer.zero_grad()
    loss = _loss(module(**case.inputs), case)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _loss(outputs: Any, case: Case) -> torch.Tensor:
    if case.loss is not None:
        first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        loss: torch.Tensor = getattr(torch.nn.functional, case.loss)(first, case.target)
        return loss
    return outputs if isinstance(outputs, torch.Tensor) else outputs["loss"]


def _wrong_changes(before: State, after: State, values: State) -> str:
    floats = [name for name, value in before.items() if value.is_floating_point()]
    largest = max(float((after[name] - before[name]).abs().max()) for name in floats)
    for name in floats:
        change = float((after[name] - before[name]).abs().max())
        array = values.get(name, before[name])
        error = float((array - after[name]).abs().max())
        if error > max(CHANGE_TOLERANCE * change, 1e-3 * largest, 1e-7):
            return f"{name} is off by {error:.3g} where it moved by {change:.3g}"
    return ""
