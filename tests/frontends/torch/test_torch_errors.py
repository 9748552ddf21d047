"""Import errors: every message names the thing, the fact and the fix."""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.api import compile
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import GraphError, ImportModelError, InternalError
from pockengine.frontends.torch import gradients, selected
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function

X = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
COLUMNS = torch.tensor([0, 1])


def rejection(model: nn.Module, *inputs: torch.Tensor) -> str:
    """Import a module that must be refused; return the error message."""
    with pytest.raises(ImportModelError) as caught:
        from_torch(model, inputs or (X,))
    return str(caught.value)


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(torch.special.bessel_j1(torch.tanh(x)))


class Bessel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_y0(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(4, 4, 1), Inner())
        self.second = Inner()
        self.third = nn.Sequential(nn.ReLU(), Bessel())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(self.third(self.second(self.first(x))))


def test_all_unsupported_operators_are_listed_with_their_locations() -> None:
    message = rejection(Outer().eval())

    assert message.startswith("Outer cannot be imported: 6 unsupported operations")
    assert "2 x aten.special_bessel_j0.default in first.1, second: there is no rule" in message
    assert "2 x aten.special_bessel_j1.default in first.1, second: there is no rule" in message
    assert "1 x aten.special_bessel_y0.default in third.1: there is no rule" in message
    assert "1 x aten.special_airy_ai.default in the top level: " in message
    assert "leave it out of the module" in message


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x.index_put((x[:, 0, 0, 0] > 0, COLUMNS), x.sum()), ["by a mask", "use where"]),
        (lambda x: x[:0], ["output", "without elements"]),
        (lambda x: x.repeat(1, 30, 1, 1).flatten().sort()[0], ["sorting 8640", "4096"]),
        (lambda x: x.to(torch.int16) * 2, ["aten.to.dtype", "float32"]),
        (lambda x: x + torch.poisson(x), ["aten.poisson.default", "random", "input"]),
    ],
)
def test_unsupported_use_of_an_operator_says_what_to_do(
    function: Callable[[torch.Tensor], torch.Tensor], words: list[str]
) -> None:
    message = rejection(Function(function))

    assert "1 unsupported operation\n" in message
    for word in words:
        assert word in message


def test_branch_on_values_is_reported_with_its_line() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                return x
            return -x

    message = rejection(Branch())

    assert message.startswith("Branch decides by the values in a tensor")
    assert "torch.where" in message
    assert "(`if x.sum() > 0:` at " in message
    assert "test_torch_errors.py:" in message


def test_a_size_read_from_the_data_is_reported_with_its_line() -> None:
    message = rejection(Function(lambda x: x.sum() / int((x > 0).sum())))

    assert message.startswith(
        "Function makes a number of Python of a tensor (`message = rejection("
    )
    assert ".item()" in message
    assert "symbol" not in message


class ReadsLate(nn.Module):
    """Adds the running mean that its norm has just updated."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).mean((2, 3)) + self.norm.running_mean


def test_a_read_of_updated_statistics_is_reported() -> None:
    words = r"reads %norm.running_mean: .* in norm wrote it, .*; read it before that layer"
    with pytest.raises(GraphError, match=words):
        compile(ReadsLate(), (torch.randn(2, 4, 3, 3),), loss="cross_entropy")


def test_mismatched_inputs_are_reported_with_the_reason() -> None:
    message = rejection(nn.Conv2d(3, 4, 3))

    assert "Conv2d does not run on example inputs of shape [(2, 4, 6, 6)]" in message
    assert "channels" in message


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((X.double(),), "example input 0 of ReLU is torch.float64; use float32"),
        (([1.0, 2.0],), "example input 0 of ReLU is a list, not a torch.Tensor"),
        ({"input": 3}, "example input 'input' of ReLU is a int, not a torch.Tensor"),
        ((torch.zeros(0, 3),), "example input 0 of ReLU has the empty shape (0, 3)"),
        (5, "must be a tuple of tensors or a dict of named ones, not int"),
    ],
)
def test_wrong_example_inputs_are_reported(inputs: object, words: str) -> None:
    with pytest.raises(ImportModelError, match=re.escape(words)):
        from_torch(nn.ReLU(), inputs)


def test_single_tensor_stands_for_a_tuple_of_one() -> None:
    assert from_torch(nn.ReLU(), X).inputs[0].shape == (2, 4, 6, 6)


def test_objects_that_are_not_modules_are_reported() -> None:
    with pytest.raises(ImportModelError, match=r"takes a torch\.nn\.Module, not function"):
        from_torch(torch.nn.functional.relu, (X,))


@pytest.mark.parametrize("loss", ["mse", nn.functional.mse_loss])
def test_modules_of_torchscript_are_reported(loss: Any) -> None:
    module = torch.jit.trace(nn.ReLU(), X)
    with pytest.raises(ImportModelError, match="whose code is TorchScript; give the module that"):
        from_torch(module, (X, X), loss=loss)


@pytest.mark.parametrize("loss", [None, lambda y: y.sum()])
def test_torchscript_within_a_module_is_named(loss: Any) -> None:
    module = nn.Sequential(nn.Linear(6, 4), torch.jit.script(nn.Linear(4, 3)))
    with pytest.raises(ImportModelError, match="at '1', whose code is TorchScript; give the"):
        from_torch(module, (torch.randn(2, 6),), loss=loss)


def test_limited_norms_of_an_embedding_are_reported() -> None:
    with pytest.raises(ImportModelError, match="max_norm scales rows of the table in place; drop"):
        from_torch(nn.Embedding(5, 3, max_norm=1.0), (torch.tensor([1, 2]),))


def test_lazy_parameter_without_a_shape_is_named() -> None:
    module = nn.Sequential(nn.ReLU(), nn.LazyLinear(3))
    with pytest.raises(ImportModelError, match="weight' has no shape yet; run the module once"):
        from_torch(module, (torch.randn(2, 6),))


def test_unknown_loss_is_named() -> None:
    with pytest.raises(
        ImportModelError, match=r"unknown loss 'mae'; known are cross_entropy, .*mse"
    ):
        from_torch(nn.ReLU(), (X,), loss="mae")


def test_cross_entropy_needs_classes() -> None:
    with pytest.raises(ImportModelError, match=r"logits of shape \(batch, classes\), not \(4,\)"):
        from_torch(nn.ReLU(), (torch.randn(4),), loss="cross_entropy")
    with pytest.raises(ImportModelError, match=r"has 1 class, .* is always 0; .*--loss mse"):
        from_torch(nn.ReLU(), (torch.randn(4, 1),), loss="cross_entropy")


def test_double_precision_weights_are_reported() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale.float()

    assert "torch.float64 in scale: convert the module by .float()" in rejection(Mixed())


def test_module_without_a_tensor_result_is_reported() -> None:
    assert "returns no tensor" in rejection(Function(lambda x: None))


def test_buffer_written_by_forward_is_reported() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1.0)
            return x * self.seen

    message = rejection(Counter())

    assert "buffer 'seen' in evaluation mode too" in message


def test_writes_of_data_dependent_size_are_reported() -> None:
    def route(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        rows = torch.where(x[:, 0] > 0)[0]
        out[rows] += x[rows].cumsum(0)
        return out

    message = rejection(Function(route))

    assert "1 x aten.where.default in the top level: a result whose size depends" in message


def test_data_dependent_size_is_reported() -> None:
    message = rejection(Function(lambda x: torch.masked_select(x, x > 0)))

    assert "aten.masked_select.default" in message
    assert "a result whose size depends on the data (`" in message
    assert "torch.where" in message


def test_only_the_first_use_of_a_data_dependent_size_is_reported() -> None:
    """The message names the selection of an expert's rows, but not every operation on them."""

    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expert = nn.Linear(144, 144)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.flatten(1)
            (chosen,) = torch.where(rows[:, 0] > 0)
            return rows.index_add(0, chosen, self.expert(rows[chosen]).cumsum(0))

    message = rejection(Routed())

    assert "cannot be imported: 1 unsupported operation\n" in message
    assert "`(chosen,) = torch.where(rows[:, 0] > 0)`" in message
    assert "compute with all elements" in message


def test_a_caching_module_is_copied_before_it_runs() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.utils.weight_norm(nn.Linear(6, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 1 and not torch.isfinite(x).all():
                raise ValueError("x is not finite")
            return self.inner(x)

    torch.manual_seed(0)
    module = Normed()
    x = torch.randn(2, 6)
    expected = module(x)  # the layer caches the computed weight

    graph = from_torch(module, (x,))

    (output,) = run(graph, {"x": x.numpy()}).values()
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-5)


def test_reads_after_a_refused_write_are_not_reported() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        whole = x[0, 0] * 2.0
        row, windows = whole[0], whole.unfold(-2, 2, 1)
        windows[windows > 0] = 0.5
        row[::2] *= -1.0
        return windows.sum() + row.sum()

    message = rejection(Function(write))

    assert "1 unsupported operation\n" in message
    assert "a view that shows an element more than once" in message


def test_input_named_like_a_parameter_is_reported() -> None:
    class Clash(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, scale: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
            return scale * self.scale * lr

    message = rejection(Clash(), X, X)

    assert "input scale in the top level: a parameter has this name" in message
    assert "input lr in the top level: the training step has this name" in message


def test_the_input_name_target_is_reserved_for_the_loss() -> None:
    class Target(nn.Module):
        def forward(self, target: torch.Tensor) -> torch.Tensor:
            return target * 2

    with pytest.raises(ImportModelError, match="input named 'target' already"):
        from_torch(Target(), (X,), loss="mse")


def test_module_that_fails_only_in_a_trace_is_not_called_broken() -> None:
    class FailsInTrace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.zeros(5) if torch.compiler.is_compiling() else x

    message = rejection(FailsInTrace())

    assert message.startswith(
        "FailsInTrace runs on its example inputs, but not while PyTorch traces it: "
    )
    assert "test_torch_errors.py:" in message


@pytest.mark.parametrize(
    ("module", "name"), [(gradients, "_check_hooks"), (selected, "traced_node")]
)
def test_our_own_exceptions_are_not_blamed_on_the_model(module: ModuleType, name: str) -> None:
    with patch.object(module, name, None), pytest.raises(InternalError) as caught:
        from_torch(Function(lambda x: x[x > 0].sum()), (X,))

    assert str(caught.value).startswith(
        "PockEngine failed while PyTorch traced Function: TypeError: 'NoneType' object is not"
    )
    assert f"with torch {torch.__version__.partition('+')[0]}" in str(caught.value)
    assert "(at frontends/torch/" in str(caught.value)


class OnlyTraced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            raise RuntimeError("no kernel for this")
        return x

    @staticmethod
    def backward(ctx: object, dy: torch.Tensor) -> torch.Tensor:
        return dy


@pytest.mark.parametrize(
    "function",
    [
        lambda x: OnlyTraced.apply(x),
        lambda x: x.reshape(7) if torch.compiler.is_exporting() else x,
    ],
)
def test_failures_only_in_a_trace_are_attributed_to_the_model(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    message = rejection(Function(function))

    assert "runs on its example inputs, but not while PyTorch traces it" in message
    assert "leave out of forward" in message
    assert "attention_mask" not in message
