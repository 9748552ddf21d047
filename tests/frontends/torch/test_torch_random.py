"""Random numbers: PyTorch's distributions, one stream per draw, new numbers in each step."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.api import compile
from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.forward.infer import InferOnly
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function

SIZE = (64, 64)
STEPS = 8
X = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))

PLACES = torch.arange(1.0, 65.0).expand(64, 64)

Draw = Callable[[torch.Tensor], torch.Tensor]

DRAWS: dict[str, Draw] = {
    "rand": lambda x: torch.rand(64, 64),
    "rand_like": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn(64, 64),
    "randn_like": lambda x: torch.randn_like(x),
    "uniform_": lambda x: torch.empty(64, 64).uniform_(-2, 3),
    "normal_": lambda x: x.new_empty(64, 64).normal_(1.0, 2.0),
    "normal of means": lambda x: torch.normal(x, 2.0),
    "normal of a size": lambda x: torch.normal(1.0, 0.5, (64, 64)),
    "log_normal_": lambda x: torch.empty_like(x).log_normal_(0.0, 0.5),
    "exponential_": lambda x: torch.empty_like(x).exponential_(2.0),
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.3),
    "bernoulli": lambda x: torch.bernoulli(torch.full((64, 64), 0.3)),
    "bernoulli of probabilities": lambda x: torch.bernoulli(torch.sigmoid(x)),
    "bernoulli_ of probabilities": lambda x: torch.empty_like(x).bernoulli_(x.sigmoid()),
    "stochastic depth": lambda x: x.new_empty(64, 64, 1).bernoulli_(0.8).div_(0.8).squeeze(-1),
    "floored": lambda x: x.div(0.8) * (0.8 + torch.rand(64, 64)).floor_(),
    "randint": lambda x: torch.randint(2, 7, (64, 64)).float(),
    "randint_like": lambda x: torch.randint_like(x, 5),
    "gumbel softmax": lambda x: functional.gumbel_softmax(x, tau=0.7),
    "gumbel softmax, hard": lambda x: functional.gumbel_softmax(x, hard=True),
    "rrelu": lambda x: functional.rrelu(x, training=True),
    "dropout2d": lambda x: functional.dropout2d(x.view(8, 64, 2, 4), 0.3),
    "alpha dropout": lambda x: functional.alpha_dropout(x, 0.3, True),
    "difference": lambda x: torch.rand(64, 64) - torch.rand(64, 64),
    "dropout and rand": lambda x: functional.dropout(torch.ones_like(x), 0.4) * torch.rand(64, 64),
    "gamma": lambda x: torch._standard_gamma(torch.full((64, 64), 2.5)),
    "gamma, steep": lambda x: torch._standard_gamma(torch.full((64, 64), 0.4)),
    "dirichlet": lambda x: torch._sample_dirichlet(torch.full((64, 64), 0.7)),
    "multinomial": lambda x: torch.multinomial(PLACES + x[0].exp(), 64, replacement=True).float(),
    "distinct indices": lambda x: torch.multinomial(PLACES, 40).float().tile(2)[:, :64],
    "order": lambda x: torch.stack([torch.randperm(64).float() for _ in range(8)]).tile(8, 1),
    "noise added": lambda x: x.clone().add_(torch.randn(64, 64), alpha=0.1),
}


class Scaled(nn.Module):
    """Multiplies a draw by a parameter, so that the model can train."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.draw = draw
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.draw(x) * self.scale


def drawn(graph: Graph, seed: int, x: torch.Tensor = X) -> dict[str, np.ndarray]:
    """Run the graph with a seed."""
    inputs = {"seed": np.int32(seed)}
    return run(graph, {value.name: inputs.get(value.name, x.numpy()) for value in graph.inputs})


@pytest.mark.parametrize("name", DRAWS)
def test_draw_has_the_distribution_of_pytorch(name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(1)
    expected = np.stack([draw(X.clone()).numpy() for _ in range(STEPS)])

    graph = from_torch(Scaled(draw), (X,))
    found = np.stack([drawn(graph, step)["output"] for step in range(STEPS)])

    spread = float(expected.std())  # 32768 draws: a mean is off by 0.6 % of the spread at most
    assert abs(float(found.mean() - expected.mean())) <= 0.04 * spread
    assert float(found.std()) == pytest.approx(spread, rel=0.04)
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    differences = np.quantile(found, quantiles) - np.quantile(expected, quantiles)
    assert np.abs(differences).max() <= 0.06 * spread
    assert not np.array_equal(found[0], found[1])


def test_draws_of_one_step_are_independent_of_each_other_and_of_the_next_step() -> None:
    class Draws(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            mask = functional.dropout(torch.ones_like(x), 0.5)
            return mask, torch.rand(64, 64), torch.rand_like(x), torch.randn(64, 64)

    graph = from_torch(Draws(), (X,))
    arrays = [a.ravel() for step in (0, 1) for a in drawn(graph, step).values()]

    between = np.corrcoef(np.stack(arrays)) - np.eye(8)
    assert np.abs(between).max() <= 0.06  # 4096 draws: chance alone gives 0.016


def test_same_seed_draws_the_same_numbers() -> None:
    graph = from_torch(Scaled(DRAWS["gumbel softmax"]), (X,))

    np.testing.assert_array_equal(drawn(graph, 3)["output"], drawn(graph, 3)["output"])


@pytest.mark.parametrize("name", ["stochastic depth", "floored"])
def test_stochastic_depth_is_disabled_in_prediction(name: str) -> None:
    draw = DRAWS[name]
    model = Scaled(draw if name == "floored" else lambda x: x * draw(x))
    compiled = compile(model, (X,), loss="mse")

    with compiled.session() as session:
        found = session.predict({"x": X.numpy()})["output"]

    np.testing.assert_allclose(found, X.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "dropout",
    [
        lambda x: functional.dropout(x, 0.0),
        lambda x: functional.dropout(x, 0.4, training=False),
        lambda x: functional.dropout1d(x, 0.4, training=False),
        lambda x: functional.alpha_dropout(x, 0.4, training=False),
        lambda x: functional.feature_alpha_dropout(x, 0.4, training=False),
    ],
)
def test_deterministic_dropout_draws_nothing(dropout: Draw) -> None:
    graph = from_torch(Function(dropout), (X,))

    assert [value.name for value in graph.inputs] == [graph.inputs[0].name]
    (found,) = run(graph, {graph.inputs[0].name: X.numpy()}).values()
    np.testing.assert_array_equal(found, X.numpy())


def test_reparametrization_has_the_gradient_of_the_drawn_noise() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Parameter(torch.randn(64))
            self.log_variance = nn.Parameter(torch.randn(64))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            noise = torch.randn_like(x)
            code = self.mean + noise * torch.exp(0.5 * self.log_variance)
            return {"loss": (code - x).square().mean(), "noise": noise}

    model = Encoder()
    graph = from_torch(model, (X,))
    wrt = {param.value: None for param in graph.params.values()}
    g = Builder(graph)
    for value, gradient in backward(g, graph.outputs["loss"], wrt).items():
        g.output(value.name, gradient)
    found = drawn(graph, 5)
    noise = torch.from_numpy(found["noise"])
    code = model.mean + noise * torch.exp(0.5 * model.log_variance)
    (code - X).square().mean().backward()

    assert noise.std() == pytest.approx(1, abs=0.05)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(found[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_noise_in_generated_code_equals_the_oracles() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            noise = torch.randn_like(x) + torch.empty_like(x).exponential_() + torch.rand_like(x)
            return {"loss": (x * self.scale + noise).square().mean()}

    graph = from_torch(Noisy(), (X,))
    with compile(Noisy(), (X,)).session() as session:
        found = float(session.train_step({"x": X.numpy()}, lr=0.1)["loss"])

    assert found == pytest.approx(float(drawn(graph, 1)["loss"]), rel=1e-4)  # the first step's seed


def test_randperm_contains_each_index_once() -> None:
    graph = from_torch(Function(lambda x: torch.randperm(64).float() * x[0].sign().abs()), (X,))

    orders = [drawn(graph, seed)["output"] for seed in range(3)]

    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(64))
    assert not np.array_equal(orders[0], orders[1])


def test_indices_drawn_without_replacement_are_distinct() -> None:
    draw = Function(lambda x: torch.multinomial(torch.ones(8) + x[0, :8].abs(), 8).float())

    found = drawn(from_torch(draw, (X,)), 1)["output"]

    np.testing.assert_array_equal(np.sort(found), np.arange(8))


def test_random_counts_are_refused_by_name() -> None:
    with pytest.raises(ImportModelError, match=r"poisson.*pass them as input"):
        from_torch(Function(lambda x: torch.poisson(x.abs())), (X,))


@pytest.mark.parametrize(
    "drop",
    [functional.dropout, functional.dropout1d, functional.alpha_dropout],
    ids=lambda drop: drop.__name__,
)
def test_what_drops_everything_passes_everything_in_predictions(
    drop: Callable[..., torch.Tensor],
) -> None:
    x = torch.ones(4, 3, 5)
    graph = from_torch(Function(lambda x: drop(x, 1.0, training=True)), (x,))
    inputs = {graph.inputs[0].name: x.numpy(), "seed": np.int32(1)}

    assert not run(graph, inputs)["output"].any()
    InferOnly(loss=False).run(graph)
    np.testing.assert_array_equal(run(graph, inputs)["output"], x.numpy())
