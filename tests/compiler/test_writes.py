"""Graphs refused because a node would read the new contents of a param, not the old ones."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.text import parse_graph
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.ir.writes import delay_writes, verify_entry, verify_writes
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.scatter_updates import ScatterUpdates
from pockengine.compiler.passes.kernels.schedule import Schedule
from pockengine.compiler.passes.legal.own_outputs import OwnOutputs
from pockengine.compiler.target import FusionRules, Target
from pockengine.errors import GraphError

HEAD = """graph step {
  input %x: f32[4,4]
  input %rows: i64[4]
  input %lr: f32[]
  param %w: f32[4,4]
  param %v: f32[4,4]
"""
WRONG = {
    "a read after the write": (
        """
  sgd_update %w, %x, %lr
  %y: f32[4,4] = add %w, %x
  output y = %y
""",
        "reads %w: .* after sgd_update",
    ),
    "a read of a view after the write": (
        """
  %flat: f32[16] = reshape %w {shape=(16,)}
  %again: f32[4,4] = reshape %flat {shape=(4, 4)}
  sgd_update %w, %x, %lr
  %y: f32[4,4] = add %again, %x
  output y = %y
""",
        "reads %again: .* after sgd_update",
    ),
    "an update that reads a param written before": (
        """
  sgd_update %w, %x, %lr
  sgd_update %v, %w, %lr
""",
        "reads %w: .* after sgd_update",
    ),
    "a second write": (
        """
  assign %w, %x
  sgd_update %w, %x, %lr
""",
        "after assign",
    ),
    "rows written while others are read": (
        """
  take_update %w, %w, %rows, %lr {axis=0}
""",
        "reads %w: .* while it writes",
    ),
    "rows written while a view is read": (
        """
  %flat: f32[16] = reshape %w {shape=(16,)}
  %again: f32[4,4] = reshape %flat {shape=(4, 4)}
  take_update %w, %again, %rows, %lr {axis=0}
""",
        "reads %again: .* while it writes",
    ),
    "a product that reads what its epilogue writes": (
        """
  fusion %x, %w, %lr {writes=(1,)} body matmul {
    input %x: f32[4,4]
    input %w: f32[4,4]
    input %lr: f32[]
    %product: f32[4,4] = matmul %x, %w
    %step: f32[4,4] = mul %product, %lr
    %new: f32[4,4] = sub %w, %step
    output w = %new
  }
""",
        "while other elements are written",
    ),
    "a value that is no param": (
        """
  %y: f32[4,4] = add %w, %x
  sgd_update %y, %x, %lr
""",
        "which is no param",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_reads_of_new_contents_are_refused(case: str) -> None:
    body, message = WRONG[case]
    graph = parse_graph(HEAD + body.lstrip("\n") + "}\n")
    with pytest.raises(GraphError, match=message):
        verify(graph)


def test_updates_may_read_their_own_param_by_any_name() -> None:
    body = """  %flat: f32[16] = reshape %w {shape=(16,)}
  %again: f32[4,4] = reshape %flat {shape=(4, 4)}
  sgd_update %w, %again, %lr
  sgd_update %v, %v, %lr
}
"""
    verify_entry(parse_graph(HEAD + body))


def test_outputs_must_not_read_updated_params() -> None:
    body = "  sgd_update %w, %x, %lr\n  output w = %w\n}\n"
    graph = parse_graph(HEAD + body)
    verify_writes(graph)
    with pytest.raises(GraphError, match="output 'w' is read after sgd_update"):
        verify_entry(graph)
    OwnOutputs().run(graph)
    verify_entry(graph)


def test_writes_stay_behind_reads_that_move() -> None:
    body = """  assign %v, %w
  assign %w, %x
  %y: f32[4,4] = add %w, %v
  output y = %y
}
"""
    graph = parse_graph(HEAD + body)
    delay_writes(graph)
    verify_writes(graph)
    assert [node.op for node in graph.nodes] == ["add", "assign", "assign"]
    assert [node.operands[0].name for node in graph.nodes[1:]] == ["v", "w"]


def test_table_that_is_its_own_gradient_is_updated_whole() -> None:
    g = Builder(Graph("rows"))
    table = g.param("table", np.ones((4, 3), np.float32))
    rows = g.input("rows", TensorType(I64, (4,)))
    lr = g.input("lr", TensorType(F32, ()))
    grad = g.take_dx(table, rows, axis=0, input_shape=(4, 3))
    g.emit("sgd_update", table, grad, lr)
    ScatterUpdates().run(g.graph)
    assert [node.op for node in g.graph.nodes] == ["take_dx", "sgd_update"]


def _forward_last(graph: Graph) -> None:
    graph.nodes.sort(key=lambda node: node.op in ("square", "reduce_sum"))


@pytest.mark.parametrize(
    ("schedule", "fact"),
    [
        (lambda graph: graph.nodes.reverse(), "is used before it is computed"),
        (_forward_last, "reads %w"),
    ],
    ids=["values", "writes"],
)
def test_every_compilation_checks_the_order(
    schedule: Callable[[Graph], None], fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = Builder(Graph("order"))
    w = g.param("w", np.ones(3, np.float32))
    g.output("loss", g.reduce_sum(g.square(w), axes=(0,)))
    monkeypatch.setattr(Schedule, "run", lambda self, graph: schedule(graph))
    with pytest.raises(GraphError, match=fact):
        compile_program(g.graph)


def test_weight_outputs_show_the_contents_before_the_step() -> None:
    g = Builder(Graph("weight"))
    w = g.param("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    g.output("loss", g.reduce_sum(g.square(w), axes=(0, 1)))
    g.output("flat", g.reshape(w, shape=(6,)))
    program = compile_program(g.graph, Training(), target=Target(FusionRules()), check=True)
    params = {"w": program.params["w"].data.copy()}
    train = partial(run, program.entries["train"].graph, params=params)
    before = params["w"].copy()
    outputs = train({"lr": np.float32(0.5)})
    np.testing.assert_array_equal(outputs["flat"], before.reshape(6))
    assert not np.array_equal(params["w"], before)
    assert all(
        value in entry.plan.values
        for entry in program.entries.values()
        for value in entry.graph.outputs.values()
    )
