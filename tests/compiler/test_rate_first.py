"""The loss's gradient is multiplied by the rate only if that gives the same steps."""

import numpy as np
import pytest

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam, Optimizer, Sgd
from pockengine.compiler.passes.backward.differentiate import Clip, Differentiate

TRAINED = {"w": None, "v": (1, 3)}


def _net(*, own_gradient: bool = False) -> Graph:
    """loss = mean((relu(x w) v)^2); `own_gradient`: relu has a custom gradient of 1."""
    g, random = Builder(Graph("net")), np.random.default_rng(0)
    x = g.input("x", TensorType(F32, (3, 4)))
    w, v = (
        g.param(name, random.normal(size=shape).astype(np.float32))
        for name, shape in (("w", (4, 5)), ("v", (5, 6)))
    )
    middle = g.relu(g.matmul(x, w))
    if own_gradient:
        cotangent = g.emit("cotangent", shape=middle.shape).result
        ones = g.constant(np.ones(middle.shape, np.float32), "ones")
        hidden = g.stop_gradient(middle)
        middle = g.emit("custom_gradient", hidden, cotangent, middle, ones).result
    g.output("loss", g.reduce_mean(g.square(g.matmul(middle, v)), axes=(0, 1), keepdims=False))
    return g.graph


def _step(graph: Graph, rate: float) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    params = {name: param.data.copy() for name, param in graph.params.items()}
    scalars = {"lr": np.asarray(rate, np.float32), "step": np.asarray(1, np.int32)}
    known = {value.name for value in graph.inputs}
    run(graph, {"x": x} | {key: scalars[key] for key in scalars if key in known}, params)
    return params


def _updates_read_rate(graph: Graph) -> bool:
    """Return whether the updates read the rate."""
    updates = [node for node in graph.nodes if node.op.endswith("_update")]
    assert len(updates) == len(TRAINED)
    return all(any(value.name == "lr" for value in node.operands) for node in updates)


@pytest.mark.parametrize("rate", [0.5, 0.0])
def test_steps_are_the_same(rate: float) -> None:
    first, last = _net(), _net()
    Differentiate(TRAINED, Sgd(), rate_first=True).run(first)
    Differentiate(TRAINED, Sgd()).run(last)
    assert not _updates_read_rate(first)
    assert _updates_read_rate(last)
    found, expected = _step(first, rate), _step(last, rate)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)
        assert (rate == 0) == np.array_equal(array, first.params[name].data)


@pytest.mark.parametrize(
    ("optimizer", "clip", "own"),
    [
        (Sgd(momentum=0.9), Clip(), False),
        (Sgd(weight_decay=0.1), Clip(), False),
        (Adam(), Clip(), False),
        (Sgd(), Clip(norm=0.1), False),
        (Sgd(), Clip(value=0.1), False),
        (Sgd(), Clip(), True),
    ],
    ids=["momentum", "decay", "adam", "norm", "value", "own"],
)
def test_gradients_with_other_uses_are_not_scaled(
    optimizer: Optimizer, clip: Clip, own: bool
) -> None:
    first, last = _net(own_gradient=own), _net(own_gradient=own)
    Differentiate(TRAINED, optimizer, clip, rate_first=True).run(first)
    Differentiate(TRAINED, optimizer, clip).run(last)
    for name, array in _step(last, 0.5).items():
        np.testing.assert_array_equal(_step(first, 0.5)[name], array)


def test_micro_batches_average_unscaled_gradients() -> None:
    graph = _net()
    Differentiate(TRAINED, Sgd(), micro_batches=2, rate_first=True).run(graph)
    assert "lr" not in {value.name for value in graph.inputs}
