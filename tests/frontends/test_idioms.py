"""Arithmetic that is recognized as an idiom, and arithmetic that only resembles one."""

import numpy as np
import pytest

from pockengine.compiler.ir import F32, I32, Builder, Graph, TensorType, Value
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.forward.infer import use_running_statistics
from pockengine.frontends.idioms import recognize

ROWS = TensorType(F32, (4, 4))


def ops_of(g: Builder, y: Value) -> list[str]:
    """Return the ops of y's graph after idiom recognition."""
    g.output("y", y)
    recognize(g.graph)
    DeadCode().run(g.graph)
    return [node.op for node in g.graph.nodes]


def normalized(g: Builder, shape: tuple[int, ...]) -> Value:
    """Normalize rows by their mean and deviation, both reshaped to `shape`."""
    x = g.input("x", ROWS)
    mean = g.reshape(g.reduce_mean(x, axes=(1,)), shape=shape)
    centered = g.sub(x, mean)
    var = g.reshape(g.reduce_mean(g.square(centered), axes=(1,)), shape=shape)
    return g.mul(centered, g.rsqrt(g.add(var, g.scalar(1e-5))))


def masked(g: Builder, test: str, bound: float, factor: float) -> Value:
    """Return x times a factor, with randomly chosen elements set to 0."""
    x, seed = g.input("x", ROWS), g.input("seed", TensorType(I32, ()))
    uniform = g.random_uniform(seed, shape=ROWS.shape, stream=3)
    condition = g.emit(test, uniform, g.scalar(bound)).result
    return g.where(condition, g.mul(x, g.scalar(factor)), g.scalar(0.0))


def averaged(g: Builder, decay: float, added: float) -> str:
    """Return the recognized momentum and scale of a moving average."""
    state = g.param("state", np.zeros(4, np.float32), trainable=False)
    value = g.input("value", TensorType(F32, (4,)))
    g.emit("assign", state, g.add(g.mul(state, g.scalar(decay)), g.mul(value, g.scalar(added))))
    recognize(g.graph)
    return " ".join(f"{n.attrs['momentum']:.6g} {n.attrs['scale']:.6g}" for n in g.graph.nodes[-1:])


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.0])
def test_averages_of_a_norm_are_read_in_evaluation(decay: float) -> None:
    g = Builder(Graph("test"))
    x = g.input("x", ROWS)
    mean = g.reduce_mean(x, axes=(0,))
    centered = g.sub(x, mean)
    var = g.reduce_mean(g.square(centered), axes=(0,))
    g.output("y", g.mul(centered, g.rsqrt(g.add(var, g.scalar(1e-5)))))
    for name, value in (("running_mean", mean), ("running_var", var)):
        state = g.param(name, np.zeros(4, np.float32), trainable=False)
        moved = g.add(g.mul(state, g.scalar(decay)), g.mul(value, g.scalar(1.0 - decay)))
        g.emit("assign", state, moved)
    recognize(g.graph)
    update = g.graph.nodes[-1]
    assert (update.op, round(update.attrs["momentum"], 6)) == ("ema_update", round(1 - decay, 6))
    use_running_statistics(g.graph)
    DeadCode().run(g.graph)
    assert not {"batch_norm", "reduce_mean"} & {node.op for node in g.graph.nodes}


def test_normalized_rows_are_a_layer_norm() -> None:
    g = Builder(Graph("test"))
    assert ops_of(g, normalized(g, (4, 1))) == ["layer_norm"]


def test_row_statistics_applied_to_columns_are_not_a_norm() -> None:
    g = Builder(Graph("test"))
    assert "layer_norm" not in ops_of(g, normalized(g, (1, 4)))


def test_dropout_is_recognized_by_either_comparison() -> None:
    for test, bound in (("ge", 0.25), ("lt", 0.75)):
        g = Builder(Graph("test"))
        assert ops_of(g, masked(g, test, bound, 1 / 0.75)) == ["dropout"]
        (node,) = g.graph.nodes
        assert node.attrs == {"p": 0.25, "stream": 3}


def test_a_mask_without_scaling_is_not_dropout() -> None:
    g = Builder(Graph("test"))
    assert "dropout" not in ops_of(g, masked(g, "ge", 0.25, 1.0))


def test_a_moving_average_preserves_momentum_and_scale() -> None:
    assert averaged(Builder(Graph("test")), 0.9, 0.1) == "0.1 1"
    assert averaged(Builder(Graph("test")), 0.9, 0.2) == "0.1 2"
