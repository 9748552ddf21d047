"""Several graphs as entries of one program, without differentiation or dropped nodes."""

import numpy as np
import pytest

from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import f32
from pockengine.errors import CompileError


def scaled(factor: float) -> Graph:
    """y = (factor weight) x, and the constant 2 factor."""
    graph = Graph("scaled")
    g = Builder(graph)
    weight = g.param("weight", np.full(3, 2, np.float32))
    g.output("y", g.mul(g.mul(g.input("x", f32(4, 3)), weight), g.scalar(factor)))
    g.output("twice", g.add(g.scalar(factor), g.scalar(factor)))
    g.output("weight", weight)
    return graph


def test_entries_share_params_and_keep_their_outputs() -> None:
    program = compile_entries("both", {"a": scaled(3.0), "b": scaled(5.0)}, check=True)
    x = np.ones((4, 3), np.float32)
    params = {name: param.data for name, param in program.params.items()}

    found = {name: run(entry.graph, {"x": x}, params) for name, entry in program.entries.items()}

    assert list(program.params) == ["weight"]
    np.testing.assert_array_equal(found["a"]["y"], np.full((4, 3), 6))
    np.testing.assert_array_equal(found["b"]["y"], np.full((4, 3), 10))
    assert found["b"]["twice"] == 10


def test_outputs_without_a_producer_are_copied_into_the_arena() -> None:
    entry = compile_entries("one", {"a": scaled(3.0)}, check=True).entries["a"]

    for name in ("twice", "weight"):
        value = entry.graph.outputs[name]
        assert value.node is not None
        assert value in entry.plan.values


def test_training_mode_norms_are_preserved() -> None:
    graph = Graph("norm")
    g = Builder(graph)
    mean, var = (g.param(name, np.ones(3, np.float32), trainable=False) for name in ("m", "v"))
    ones = g.constant(np.ones(3, np.float32))
    y, new_mean, new_var = g.emit(
        "batch_norm", g.input("x", f32(4, 3)), ones, ones, eps=0.0
    ).results
    g.emit("ema_update", mean, new_mean, momentum=0.5)
    g.emit("ema_update", var, new_var, momentum=0.5)
    g.output("y", y)
    params = {"m": np.ones(3, np.float32), "v": np.ones(3, np.float32)}
    x = np.arange(12, dtype=np.float32).reshape(4, 3)

    entry = compile_entries("norm", {"a": graph}, check=True).entries["a"]
    found = run(entry.graph, {"x": x}, params)["y"]

    np.testing.assert_allclose(found, (x - x.mean(0)) / x.std(0) + 1, rtol=1e-5)
    np.testing.assert_allclose(params["m"], (1 + x.mean(0)) / 2, rtol=1e-6)


def test_params_with_the_same_name_must_match() -> None:
    other = Graph("other")
    g = Builder(other)
    g.output("y", g.neg(g.param("weight", np.ones(5, np.float32))))

    with pytest.raises(CompileError, match="graph b has a param weight that differs"):
        compile_entries("both", {"a": scaled(1.0), "b": other})
