"""Activations recomputed from saved values: the same results in fewer bytes, without a budget."""

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import LOSS
from pockengine.compiler.options import Training
from pockengine.compiler.passes.memory.second_computation import (
    backward_readers,
    elementwise_chain,
)
from pockengine.compiler.program import Program
from pockengine.compiler.target import OPTIONAL, Target
from pockengine.tests.compiler.small_nets import NetBuilder, batches, residual_net

SHAPE = {"batch": 2, "size": 12}


def compiled(graph: Graph, scheme: str, *, again: bool) -> Program:
    passes = OPTIONAL if again else OPTIONAL - {"recompute_elementwise"}
    return compile_program(graph, Training(scheme), target=Target(passes=passes), check=True)


def saved_ops(graph: Graph) -> set[str]:
    """Return the ops of large forward values that the backward pass still reads."""
    found: set[str] = set()

    def watch(name: str, seen: Graph) -> None:
        if name == "train.recompute_elementwise":
            readers = backward_readers(seen, seen.outputs[LOSS])
            found.update(_op(value) for value in readers)

    compile_program(graph, Training(), observe=watch)
    return found


def _op(value: Value) -> str:
    assert value.node is not None
    return value.node.op


@pytest.mark.parametrize("scheme", ["full", "bias-only"])
def test_norms_and_activations_are_recomputed(scheme: str) -> None:
    graph = residual_net(**SHAPE)
    lean = compiled(graph, scheme, again=True)
    plain = compiled(graph, scheme, again=False)
    assert lean.entries["train"].plan.size < plain.entries["train"].plan.size
    results = []
    for program in (plain, lean):
        params = {name: param.data.copy() for name, param in program.params.items()}
        step = program.entries["train"].graph
        losses = [float(run(step, batch, params)[LOSS]) for batch in batches(2, **SHAPE)]
        results.append((losses, params))
    assert results[0][0] == results[1][0]
    for name, data in results[0][1].items():
        np.testing.assert_array_equal(results[1][1][name], data)


def test_convolution_results_stay_saved() -> None:
    assert "conv2d" in saved_ops(residual_net(**SHAPE))


def test_sum_over_many_layers_stays_saved() -> None:
    """Recomputing it would read every summand, which is more than the saved sum."""
    net = NetBuilder("sums")
    x = net.g.input("x", TensorType(F32, (2, 12, 12, 8)))
    target = net.g.input("target", TensorType(I64, (2,)))
    total = net.conv(x, "stem", 8, 3)
    for layer in range(4):
        branch = net.g.square(net.conv(net.g.square(total), f"branch{layer}", 8, 3))
        total = net.g.add(total, branch)
    saved = saved_ops(net.head(total, 3, target))
    assert saved == {"conv2d", "add"}


def test_long_chains_are_walked_in_linear_time() -> None:
    g = Builder(Graph("chain"))
    y = g.input("x", TensorType(F32, (32, 64)))
    for _ in range(60):
        y = g.mul(y, g.sigmoid(y))
    chain = elementwise_chain(y, lambda value: False)
    assert chain is not None
    assert chain == g.graph.nodes
