"""Helpers of the PyTorch frontend's tests: compare our oracle with PyTorch."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from pockengine.compiler.autodiff import backward
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.torch.model import from_torch, to_state_dict

FORWARD_TOLERANCE = 1e-5
"""Largest error of a forward pass, relative to the largest element."""


class Function(nn.Module):
    """Wraps a function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def relative_error(found: np.ndarray, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest element."""
    reference = expected.detach().numpy()
    assert found.shape == reference.shape
    scale = float(np.abs(reference).max()) or 1.0
    return float(np.abs(found.astype(np.float64) - reference).max()) / scale


def arrays_of(graph: Graph, inputs: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
    """Return these tensors by the graph's input names, in order."""
    names = [value.name for value in graph.inputs]
    return {name: x.detach().numpy().copy() for name, x in zip(names, inputs, strict=True)}


def check_forward(
    module: nn.Module, *inputs: torch.Tensor, tolerance: float = FORWARD_TOLERANCE
) -> Graph:
    """Import the module and compare the oracle's outputs with PyTorch's."""
    graph = from_torch(module, inputs)
    verify(graph)
    found = run(graph, arrays_of(graph, inputs))
    expected = copy.deepcopy(module)(*(x.clone() for x in inputs))
    tensors = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for array, reference in zip(found.values(), tensors, strict=True):
        assert relative_error(array, reference) <= tolerance
    return graph


def check_gradients(module: nn.Module, *batches: tuple[torch.Tensor, ...]) -> None:
    """Compare a module's loss and gradients with PyTorch's on each batch, within 1e-4."""
    graph = from_torch(module, batches[0])
    g = Builder(graph)
    needed = {param.value: None for param in graph.params.values() if param.trainable}
    gradients = backward(g, graph.outputs["loss"], needed)
    for name, param in graph.params.items():
        if param.value in gradients:
            g.output(f"d {name}", gradients[param.value])
    for batch in batches:
        reference = copy.deepcopy(module)
        loss = reference(*(x.clone() for x in batch))
        loss.backward()
        found = run(graph, arrays_of(graph, batch))
        assert relative_error(found["loss"], loss) <= 1e-4
        for name, parameter in reference.named_parameters():
            gradient = parameter.grad
            if gradient is None:  # the loss does not depend on it
                assert f"d {name}" not in found
                continue
            order = np.argsort(graph.params[name].permutation or range(gradient.dim()))
            assert relative_error(found[f"d {name}"].transpose(order), gradient) <= 1e-4, name


def sgd_losses(
    module: nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> list[float]:
    """Train the module in place with PyTorch's SGD and return the losses."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr, momentum=momentum, weight_decay=weight_decay)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        value = loss(module(x), target)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


def oracle_losses(
    graph: Graph,
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train with the whole compiler and our oracle; return the losses and the final params."""
    optimizer = Sgd(momentum=momentum, weight_decay=weight_decay)
    step = compile_program(graph, Training(optimizer=optimizer), check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    losses = []
    for x, target in batches:
        inputs = {graph.inputs[0].name: x.numpy(), "target": target.numpy()}
        outputs = run(step, {**inputs, "lr": np.float32(lr)}, params)
        losses.append(float(outputs["loss"]))
    return losses, params


def check_training(
    module: nn.Module,
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    *,
    loss: str = "cross_entropy",
    lr: float = 0.05,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> None:
    """Train with the oracle and with PyTorch: losses within 1e-4, weights within 1e-3."""
    function = {"cross_entropy": nn.functional.cross_entropy, "mse": nn.functional.mse_loss}[loss]
    graph = from_torch(module, (batches[0][0],), loss=loss)
    settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
    found, params = oracle_losses(graph, batches, **settings)
    reference = copy.deepcopy(module)
    expected = sgd_losses(reference, function, batches, **settings)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    weights = {name: params[name] for name in graph.params if name in params}
    assert set(weights) >= {name for name, param in graph.params.items() if param.trainable}
    check_state(to_state_dict(graph, weights), reference.state_dict())


def check_state(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], rtol: float = 1e-3
) -> None:
    """Compare every tensor, relative to its largest element or to 0.01, whichever is larger.

    A bias cancelled by batch norm has a zero gradient, so after ten steps it is rounding error.
    """
    for name, tensor in found.items():
        scale = max(float(expected[name].abs().max()), 0.01)
        error = float((tensor - expected[name]).abs().max())
        assert error <= rtol * scale, f"{name}: off by {error:g}"


def batches_of(
    shape: Sequence[int], classes: int, count: int = 10, seed: int = 0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of random pictures and labels."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(*shape, generator=generator),
            torch.randint(classes, (shape[0],), generator=generator),
        )
        for _ in range(count)
    ]
