"""`compile(..., check=True)`: one compiled step compared with the framework's own."""

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pockengine
from pockengine import check
from pockengine.backends import artifact
from pockengine.backends.native import build
from pockengine.check import CheckWarning
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.sparse.choice import FULL, parse_choice
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import CheckError
from pockengine.frontends.torch.frontend import TorchFrontend
from pockengine.frontends.torch.reference import reference


class Small(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.norm(self.conv(x)))
        return self.head(self.drop(y.mean((2, 3))))


def small(drop: float = 0.0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return Small(drop).train(), (torch.randn(4, 3, 8, 8),)


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the importer map tanh to sigmoid, like a wrong entry in a table."""
    from pockengine.frontends.torch.aten import registry

    right = registry.rule_for
    monkeypatch.setattr(
        "pockengine.frontends.torch.graph.rule_for",
        lambda name: right("sigmoid.default" if name == "tanh.default" else name),
    )


def test_a_correct_step_passes_and_leaves_the_model_unchanged() -> None:
    model, inputs = small(drop=0.5)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    random = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckWarning)
        pockengine.compile(model, inputs, loss="cross_entropy", check=True)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(x.grad is None for x in model.parameters())
    assert model.drop.training


class Checkpointed(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


@pytest.mark.filterwarnings("error::pockengine.check.CheckWarning")
def test_a_recomputed_norm_is_checked_and_unchanged() -> None:
    torch.manual_seed(0)
    model = Checkpointed().train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    pockengine.compile(model, (torch.randn(4, 3, 8, 8),), loss="cross_entropy", check=True)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_gradients_of_perturbed_weights_include_those_recomputed() -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 3, 8, 8),)
    plain, recomputed = Small().train(), Checkpointed().train()
    recomputed.load_state_dict(plain.state_dict())
    expected, found = (
        reference(model, inputs, "cross_entropy", lambda array: 2 * array).gradients
        for model in (plain, recomputed)
    )
    assert expected
    assert found
    assert all(np.allclose(found[name], expected[name], atol=1e-6) for name in expected)


class Centered(Small):
    """Branches on its mode: centers the input in evaluation only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if self.training else x - 0.5)


def test_a_model_with_another_prediction_in_evaluation_mode_is_reported() -> None:
    expected = r"Centered: output 'output' in evaluation mode is wrong .* PyTorch by 0\.\d+"
    model, inputs = Centered(0.5), (torch.randn(4, 3, 8, 8),)
    with pytest.raises(CheckError, match=expected):
        pockengine.compile(model.train(), inputs, loss="cross_entropy", check=True)
    assert all(part.training for part in model.modules())
    compiled = pockengine.compile(model.eval(), inputs, loss="cross_entropy", check=True)
    with compiled.session() as session:
        output = session.predict({"x": inputs[0].numpy()})["output"]
    np.testing.assert_allclose(output, model(inputs[0]).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("wrong_tanh")
@pytest.mark.parametrize(
    "optimizer", ["sgd", "adam"]
)  # the optimizer of the artifact's step, or another
def test_a_wrong_import_is_reported_and_leaves_no_files(optimizer: str, tmp_path: Path) -> None:
    model, inputs = small()
    expected: Any = {"loss": "cross_entropy", "optimizer": optimizer, "check": True}
    with pytest.raises(CheckError, match=r"Small: the loss is wrong .* PyTorch by 0\.\d+"):
        pockengine.compile(model, inputs, folder=tmp_path / "artifact", **expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("optimizer", "libraries"), [("sgd", 1), ("adam", 2)])
def test_a_checked_compile_imports_once_and_hashes_once(
    optimizer: str, libraries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(TorchFrontend, "graph")
    counted(build, "link_library")
    counted(artifact, "load_artifact")
    model, inputs = small()
    pockengine.compile(model, inputs, loss="mse", optimizer=optimizer, check=True)
    assert calls == {"graph": 1, "link_library": libraries}


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.first, self.l = scale, nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(torch.tanh(self.first(x))) * self.scale


@pytest.mark.parametrize("scale", [1e-8, 1e-30, 1e16])
def test_small_and_large_gradients_are_checked(scale: float, wrong: list[float]) -> None:
    """A correct gradient of 1e-8 passes, although a step of rate 1 loses it in the weight.

    An error of 1 % is refused at each scale except 1e-30, where it is below rounding.
    """
    torch.manual_seed(0)
    loss = "mse" if scale > 1 else "cross_entropy"
    arguments = (Scaled(scale), (torch.randn(5, 3),))
    wrong[0] = 1.0
    pockengine.compile(*arguments, loss=loss, check=True)
    if scale > 1e-30:
        wrong[0] = 1.01
        with pytest.raises(CheckError, match=r"the gradient of first\.\w+ is wrong"):
            pockengine.compile(*arguments, loss=loss, check=True)


@pytest.fixture(name="wrong")
def wrong_gradient_of_tanh(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Multiply the gradient of tanh by the number in the returned list, 1 at first."""
    right = lookup("tanh")
    rule = right.vjp_rule(0)
    assert rule is not None

    factor = [1.01]

    def wrong(g: Any, node: Any, dy: Any) -> Any:
        return rule(g, node, g.mul(dy, g.scalar(factor[0])))

    from pockengine.compiler.ops import registry

    changed = replace(right, vjp={right.operand_name(0): wrong})
    monkeypatch.setitem(registry._OPS, "tanh", changed)
    return factor


@pytest.mark.usefixtures("wrong")
def test_a_wrong_gradient_is_reported_by_the_users_name() -> None:
    model, inputs = small()
    with pytest.raises(CheckError, match=r"the gradient of (conv|norm)\.\w+ is wrong"):
        pockengine.compile(model, inputs, loss="cross_entropy", check=True)


PART = Scheme("part", (("conv.weight", parse_choice(0.5, "part")), ("head.*", FULL)))


@pytest.mark.parametrize("scheme", ["bias-only", PART, lora(2, 4.0, ["head.weight"])])
def test_the_params_of_a_scheme_are_checked(scheme: Any) -> None:
    model, inputs = small()
    pockengine.compile(model, inputs, loss="mse", scheme=scheme, check=True)


def test_an_ill_conditioned_net_passes() -> None:
    class Cancelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(6, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x @ self.w
            return (((y + 1e5) - 1e5) ** 2).mean() + ((y * 1e4).sin()).mean()

    torch.manual_seed(0)
    pockengine.compile(Cancelling(), (torch.randn(3, 6),), check=True)


class Shapes(nn.Module):
    """The incomplete gamma function; PyTorch has no derivative in its shape parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.shape = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.gammainc(self.shape, x).mean()


def test_operators_without_a_derivative_in_pytorch_pass() -> None:
    pockengine.compile(Shapes(), (torch.ones(3, 2),), check=True)


def test_a_random_step_is_compared_with_the_oracle() -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(self.head(x), 0.5)

    with pytest.warns(CheckWarning, match="it draws random numbers"):
        pockengine.compile(Drawing(), (torch.randn(3, 4),), loss="mse", check=True)


class DropPath(nn.Module):
    """Stochastic depth, as timm writes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.new_empty(len(x), 1).bernoulli_(0.8).div_(0.8) if self.training else x


class DropBlock(nn.Module):
    """Zeroes neighbors together, which is not recognized as dropout."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        kept = (torch.rand_like(x) > 0.2).float()
        return x * nn.functional.max_pool1d(kept, 3, 1, 1) * 1.5


@pytest.mark.parametrize("kind", [DropPath, DropBlock, nn.RReLU])
@pytest.mark.filterwarnings("ignore:.*computes something else in evaluation mode")
def test_modules_that_only_draw_are_off_in_the_check(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.Sequential(nn.Linear(4, 6), kind(), nn.Dropout(0.3), nn.Linear(6, 3))
    compared, compare = [], check._compare

    def record(*arguments: Any) -> None:
        compared.append(arguments[-1].reference)
        compare(*arguments)

    monkeypatch.setattr(check, "_compare", record)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckWarning)
        pockengine.compile(net, (torch.randn(3, 4),), loss="mse", check=True)
    assert compared == ["PyTorch"]
    assert all(part.training for part in net.modules())


def test_a_graph_is_compared_with_the_oracle() -> None:
    from pockengine.compiler.ir import F32, Builder, Graph, TensorType

    graph = Graph("own")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (4, 3)))
    w = g.param("w", np.ones((3, 2), np.float32))
    g.output("loss", g.reduce_mean(g.square(g.matmul(x, w)), axes=(0, 1), keepdims=False))
    pockengine.compile(graph, (), check=True)
