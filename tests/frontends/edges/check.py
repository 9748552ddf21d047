"""Many small functions as one module: their results and gradients beside eager PyTorch's."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch

RTOL, ATOL = 2e-4, 1e-5
"""Difference allowed at each element: relative, absolute. NaN equals NaN, infinities their like."""


@dataclass(frozen=True)
class EdgeCase:
    """A function of tensors; those of floats are trained, the others are inputs."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]


class Cases(nn.Module):
    """Functions side by side: returns all their results, then the weighted sum of the floats."""

    def __init__(self, cases: Sequence[EdgeCase]) -> None:
        super().__init__()
        self.cases = list(cases)
        self.inputs: list[torch.Tensor] = []
        self.places: list[list[str | int]] = []
        for number, case in enumerate(cases):
            self.places.append([self._place(number, i, x) for i, x in enumerate(case.tensors)])

    def _place(self, number: int, index: int, tensor: torch.Tensor) -> str | int:
        if not tensor.dtype.is_floating_point:
            self.inputs.append(tensor)
            return len(self.inputs) - 1
        name = f"c{number}_{index}"
        self.register_parameter(name, nn.Parameter(tensor.clone()))
        return name

    def results(self, inputs: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Return each case's results."""
        found = []
        for case, places in zip(self.cases, self.places, strict=True):
            operands = [inputs[p] if isinstance(p, int) else getattr(self, p) for p in places]
            result = case.function(*operands)
            found.append(list(result) if isinstance(result, (list, tuple)) else [result])
        return found

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        results = [y for part in self.results(inputs) for y in part]
        return [*results, self.loss(results)]

    def loss(self, results: Sequence[torch.Tensor]) -> torch.Tensor:
        """Add up all floats, weighted by their places so that no two gradients cancel."""
        terms = [(y * weights_of(y)).sum() for y in results if y.is_floating_point()]
        return torch.stack(terms).sum() if terms else torch.zeros(())


def weights_of(y: torch.Tensor) -> torch.Tensor:
    """Return a weight for each element: 1, 1.25, 1.5, 1.75, and again."""
    return (torch.arange(y.numel()) % 4 * 0.25 + 1).reshape(y.shape)


@dataclass(frozen=True)
class Expected:
    """Eager PyTorch's results of each case and the gradient of each parameter."""

    results: list[list[np.ndarray]]
    gradients: Mapping[str, np.ndarray]


def eager(module: Cases) -> Expected:
    """Run each case by itself in PyTorch."""
    module = copy.deepcopy(module)
    results = module.results(module.inputs)
    arrays = []
    for part in results:
        differentiable = [y for y in part if y.requires_grad]
        for y in differentiable:
            y.backward(weights_of(y), retain_graph=True)
        arrays.append([y.detach().numpy().copy() for y in part])
    gradients = {
        name: (torch.zeros_like(p) if p.grad is None else p.grad + 0).numpy()
        for name, p in module.named_parameters()
    }
    return Expected(arrays, gradients)


def imported(module: Cases) -> Graph:
    """Import the module and add the gradient of every parameter as an output."""
    graph = from_torch(module, tuple(module.inputs))
    g = Builder(graph)
    *_, loss = graph.outputs.values()
    params = {name: param for name, param in graph.params.items() if param.trainable}
    gradients = backward(g, loss, {param.value: None for param in params.values()})
    for name, param in params.items():
        if param.value in gradients:
            g.output(f"gradient.{name}", gradients[param.value])
    return graph


def by_oracle(module: Cases, graph: Graph) -> dict[str, np.ndarray]:
    """Evaluate an imported graph in NumPy."""
    return run(graph, inputs_of(module, graph))


def inputs_of(module: Cases, graph: Graph) -> dict[str, np.ndarray]:
    """Pair the graph's inputs with the module's."""
    pairs = zip((value.name for value in graph.inputs), module.inputs, strict=True)
    return {name: x.numpy() for name, x in pairs}


def differences(
    module: Cases, graph: Graph, found: Mapping[str, np.ndarray], expected: Expected
) -> list[str]:
    """Describe where results or gradients differ from PyTorch's: "case: part: where"."""
    arrays = iter(found.values())
    wrong = []
    for case, results in zip(module.cases, expected.results, strict=True):
        for index, reference in enumerate(results):
            text = _difference(next(arrays), reference, case.tensors)
            wrong += [f"{case.name}: result {index}: {text}"] if text else []
    for number, case in enumerate(module.cases):
        for index, tensor in enumerate(case.tensors):
            if tensor.dtype.is_floating_point:
                name = f"c{number}_{index}"
                gradient = _gradient(graph, found, name, tensor.shape)
                text = _difference(gradient, expected.gradients[name], case.tensors)
                wrong += [f"{case.name}: gradient {index}: {text}"] if text else []
    return wrong


def _gradient(
    graph: Graph, found: Mapping[str, np.ndarray], name: str, shape: Sequence[int]
) -> np.ndarray:
    array = found.get(f"gradient.{name}")
    if array is None:
        return np.zeros(shape, np.float32)
    order = graph.params[name].permutation
    return array if order is None else array.transpose(np.argsort(order))


def _difference(
    found: np.ndarray, expected: np.ndarray, operands: Sequence[torch.Tensor]
) -> str | None:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
    with np.errstate(all="ignore"):
        if expected.dtype.kind == "f":
            same = np.isclose(found, expected, RTOL, ATOL, equal_nan=True)
        else:
            same = found == expected
    if same.all():
        return None
    places = np.argwhere(~same)
    texts = []
    for place in places[:6]:
        at = tuple(int(i) for i in place)
        values = [x[at].item() for x in operands if x.shape == expected.shape]
        texts.append(f"at {values or list(at)} {found[at]!s} not {expected[at]!s}")
    return f"{len(places)} of {same.size}: {'; '.join(texts)}"
