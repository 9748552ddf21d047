"""In-place writes: small programs have PyTorch's loss and gradient, or are refused by name.

The oracle runs the programs; the last test runs one in generated C.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.api import compile
from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch import write_programs
from pockengine.tests.frontends.torch.view_programs import PROGRAMS, program

assert write_programs  # importing it fills the table

TOLERANCE = 1e-4
"""Largest relative error of a loss, and largest absolute error of a gradient's element."""


class Weighted(nn.Module):
    """Applies a program to the input and to the input plus a parameter; returns a loss."""

    def __init__(self, name: str, weights: torch.Tensor | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.name = name
        self.shift = nn.Parameter(torch.randn(4, 6))
        self.weights = weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = PROGRAMS[self.name](x + self.shift, x)
        return result if self.weights is None else (result * self.weights).sum()


def weighted(name: str) -> tuple[Weighted, torch.Tensor]:
    """Return a program with random weights for its result, and an input."""
    torch.manual_seed(1)
    x = torch.randn(4, 6)
    return Weighted(name, torch.randn(Weighted(name, None)(x.clone()).shape)), x


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_place_program_has_pytorchs_loss_and_gradient(name: str) -> None:
    model, x = weighted(name)
    expected = copy.deepcopy(model)
    loss = expected(x.clone())
    loss.backward()

    graph = from_torch(model, (x,))
    gradient = torch.zeros(4, 6)
    if "shift" in graph.params:
        shift = graph.params["shift"].value
        gradients = backward(Builder(graph), graph.outputs["loss"], {shift: None})
        for value in gradients.values():
            Builder(graph).output("gradient", value)
    found = run(graph, {value.name: x.numpy() for value in graph.inputs})

    assert float(found["loss"]) == pytest.approx(float(loss), rel=TOLERANCE, abs=TOLERANCE)
    if "gradient" in found:
        gradient = torch.from_numpy(found["gradient"])
    slope = torch.zeros(4, 6) if expected.shift.grad is None else expected.shift.grad
    assert float((gradient - slope).abs().max()) <= TOLERANCE


def test_loop_of_writes_ends_in_one_concatenation() -> None:
    model, x = weighted("rows_in_a_loop")

    graph = from_torch(model, (x,))

    (last,) = (node for node in graph.nodes if node.op == "mul" and node.result.shape == (4, 6))
    assert last.operands[0].node is not None
    assert len(last.operands[0].node.operands) == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("overlapping_windows", ["shows an element more than once", "clone"]),
        (
            "captured_tensor",
            ["changes a parameter, or a tensor that is no persistent buffer, in place"],
        ),
    ],
)
def test_unsupported_write_is_refused_by_name(name: str, words: list[str]) -> None:
    @program
    def overlapping_windows(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        z = y * 1
        z.unfold(1, 3, 1)[0].mul_(2)
        return z

    memory = torch.zeros(4, 6)

    @program
    def captured_tensor(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        memory[0] += 1
        return y * memory

    try:
        with pytest.raises(ImportModelError) as caught:
            from_torch(Weighted(name, torch.ones(4, 6)), (torch.randn(4, 6),))
    finally:
        for extra in ("overlapping_windows", "captured_tensor"):
            del PROGRAMS[extra]
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("name", ["label_shift", "masks_in_place", "permuted_view"])
def test_writes_in_generated_code_train_as_pytorch_does(name: str) -> None:
    model, x = weighted(name)
    reference = copy.deepcopy(model)
    loss = reference(x.clone())
    loss.backward()

    compiled = compile(model, (x,))
    with compiled.session() as session:
        found = session.train_step({compiled.graph.inputs[0].name: x.numpy()}, lr=0.1)["loss"]
        state = compiled.state_dict(session)

    assert float(found) == pytest.approx(float(loss), rel=TOLERANCE)
    assert reference.shift.grad is not None
    moved = reference.shift.detach() - 0.1 * reference.shift.grad
    np.testing.assert_allclose(state["shift"].numpy(), moved.numpy(), atol=TOLERANCE)


def test_a_write_to_memory_read_through_another_view_is_refused() -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.sinh()
            y.t().add_(y[:, 1])
            return y

    with pytest.raises(ImportModelError, match=r"aten\.add_.*through another view.*\.clone\(\)"):
        from_torch(Shifted(), (torch.randn(4, 4),))


def test_a_write_that_would_lose_a_gradient_is_refused() -> None:
    class Attached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Parameter(torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x - self.v
            z = y.detach()
            z.sub_(y)
            y += x
            return (z * z).mean()

    with pytest.raises(ImportModelError, match="shares, after a write; use the operator's out-of-"):
        from_torch(Attached(), (torch.randn(4, 4),))
