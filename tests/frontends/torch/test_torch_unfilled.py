"""Modules on device `meta` import as shapes; a tensor passed twice becomes two inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.attach import attach
from pockengine.compiler.ir.contents import mapped
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.text import print_graph
from pockengine.errors import GraphError
from pockengine.frontends.torch.model import from_torch

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)
        self.other.weight = self.one.weight
        self.register_buffer("scale", torch.full((6,), 0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.other(torch.relu(self.one(x))) * self.scale).square().mean()


def on_meta(module: nn.Module) -> nn.Module:
    made: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, tensor in part._parameters.items():
            if tensor is not None:
                part._parameters[name] = made.setdefault(
                    id(tensor), nn.Parameter(tensor.to("meta"))
                )
    return module


def test_a_module_on_meta_has_the_same_graph(tmp_path: Path) -> None:
    whole, shapes = from_torch(Tied(), (X,)), from_torch(on_meta(Tied()), (X,))
    assert print_graph(whole) == print_graph(shapes)
    assert not any(param.contents.known for param in shapes.params.values())
    with pytest.raises(GraphError, match="has a shape and no numbers"):
        shapes.params["one.weight"].data  # noqa: B018


def test_weights_from_a_file_complete_the_model(tmp_path: Path) -> None:
    module = Tied()
    expected = float(module(X).detach())
    names = ("one.weight", "one.bias", "other.bias")
    save_file({n: module.get_parameter(n).detach() for n in names}, tmp_path / "w")
    graph = from_torch(on_meta(module), (X,))

    attach(graph, mapped(tmp_path / "w"))

    params = {name: param.data for name, param in graph.params.items()}
    assert float(run(graph, {"x": X.numpy()}, params)["loss"]) == pytest.approx(expected, rel=1e-5)


def test_the_module_stays_on_meta_and_compiles_without_numbers() -> None:
    module = on_meta(Tied())
    program = compile_program(from_torch(module, (X,)))
    assert all(param.is_meta for param in module.parameters())
    assert module.other.weight is module.one.weight
    assert program.arena_bytes > 0


class Difference(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (2 * x - y).square().mean()


@pytest.mark.parametrize("inputs", [(X, X), {"x": X, "y": X}])
def test_a_tensor_passed_twice_becomes_two_inputs(
    inputs: tuple[torch.Tensor, ...] | dict[str, torch.Tensor],
) -> None:
    graph = from_torch(Difference(), inputs)
    x, y = np.ones((3, 6), np.float32), np.full((3, 6), 5, np.float32)
    assert float(run(graph, {"x": x, "y": y}, {})["loss"]) == 9
