"""Builder, verifier and text format."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, Node, TensorType, Value
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.verify import Inferred, verify
from pockengine.compiler.options import Training
from pockengine.errors import GraphError
from pockengine.tests.compiler.small_nets import batches, residual_net


def small() -> Builder:
    g = Builder(Graph("small"))
    x = g.input("x", TensorType(F32, (2, 3)))
    g.output("y", g.relu(x))
    return g


def test_text_form_round_trips() -> None:
    program = compile_program(residual_net(), Training("bias-only"))
    for graph in (residual_net(), *(entry.graph for entry in program.entries.values())):
        text = print_graph(graph)
        params = {name: param.data for name, param in graph.params.items()}
        again = parse_graph(text, params)
        verify(again)
        assert print_graph(again) == text


def test_parsed_graph_computes_the_same() -> None:
    graph = residual_net()
    params = {name: param.data for name, param in graph.params.items()}
    again = parse_graph(print_graph(graph), params)
    batch = batches(1)[0]
    np.testing.assert_array_equal(run(graph, batch)["loss"], run(again, batch)["loss"])


def test_infinite_attrs_and_constants_survive_the_text_form() -> None:
    g = small()
    x = g.graph.inputs[0]
    g.output("z", g.maximum(g.clamp(x, min=-1.0), g.scalar(-np.inf)))
    text = print_graph(g.graph)
    assert print_graph(parse_graph(text)) == text


def test_nan_survives_the_text_form() -> None:
    g = small()
    x = g.graph.inputs[0]
    state = g.param("state", np.zeros((2, 3), np.float32), trainable=False)
    g.emit("ema_update", state, x, momentum=0.1, scale=math.nan)
    g.output("z", g.maximum(x, g.constant(np.float32([[math.nan, -math.inf, 1.0]]))))
    text = print_graph(g.graph)
    assert "scale=nan" in text
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected"),
        ("graph g {", "no closing brace"),
        ("graph g {\n}\nmore", "line 3: text after"),
        ("graph g {\n  nonsense !\n}", "line 2: this is no statement"),
        ("graph g {\n  output y = %y\n}", "line 2: %y is not defined"),
        ("graph g {\n  input %x: f33[2]\n}", "line 2: .*f33"),
        ("graph g {\n  input %x: f32[2]\n  %y: f32[2] = fly %x\n}", "line 3: there is no op 'fly'"),
        ("graph g {\n  input %x: f32[2]\n  %y: f32[3] = relu %x\n}", "line 3: its results are"),
        ("graph g {\n  input %x: f32[2]\n  input %x: f32[2]\n}", "line 3: %x is defined twice"),
        (
            "graph g {\n  input %x: f32[2]\n  %y: f32[2] = clamp %x {min=print(1)}\n}",
            "line 3: malformed node",
        ),
    ],
)
def test_errors_in_text_name_the_line(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_graph(text)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("add", [(2,), (3,)], {}, "do not broadcast"),
        ("matmul", [(2, 3), (2, 3)], {}, "inner sizes 3 and 2 differ"),
        ("relu", [(2,), (2,)], {}, "not 2 operands"),
        ("relu", [(2,)], {"slope": 1}, "has no attr"),
        ("reshape", [(2,)], {}, "needs attr"),
        ("reshape", [(2,)], {"shape": (3,)}, "other number of elements"),
        ("conv2d", [(1, 4, 4, 3), (3, 3, 2, 8)], {}, "3 input channels"),
        ("conv2d", [(1, 2, 2, 3), (3, 3, 3, 8)], {}, "does not fit"),
        ("reduce_sum", [(2, 3)], {"axes": (1, 0)}, "sorted"),
        ("slice", [(4,)], {"start": (2,), "stop": (2,), "step": (1,)}, "empty or outside"),
        ("where", [(2,), (2,), (2,)], {}, "must be bool"),
    ],
)
def test_types_are_checked_when_a_node_is_built(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, object], message: str
) -> None:
    g = Builder(Graph("wrong"))
    operands = [g.input(f"x{i}", TensorType(F32, shape)) for i, shape in enumerate(shapes)]
    with pytest.raises(GraphError, match=message):
        g.emit(op, *operands, **attrs)


def test_unknown_ops_and_duplicate_names_are_errors() -> None:
    g = small()
    with pytest.raises(GraphError, match="no op 'conv9d'"):
        g.conv9d(g.graph.inputs[0])
    with pytest.raises(GraphError, match="'x' already"):
        g.input("x", TensorType(F32, (1,)))
    with pytest.raises(GraphError, match="output 'y' already"):
        g.output("y", g.graph.inputs[0])
    with pytest.raises(GraphError, match="no input 'z'"):
        g.graph.input("z")


def test_verifier_finds_use_before_definition() -> None:
    g = small()
    g.output("z", g.neg(g.graph.outputs["y"]))
    g.graph.nodes.reverse()
    with pytest.raises(GraphError, match="used before it is computed"):
        verify(g.graph)


def test_verifier_finds_reads_after_an_update() -> None:
    g = small()
    w = g.param("w", np.zeros((2, 3), np.float32))
    lr = g.input("lr", TensorType(F32, ()))
    g.emit("sgd_update", w, g.graph.outputs["y"], lr)
    g.output("late", g.neg(w))
    with pytest.raises(GraphError, match=r"reads %w: f32\[2,3\] after"):
        verify(g.graph)


def test_verifier_finds_writes_to_values_other_than_params() -> None:
    g = small()
    lr = g.input("lr", TensorType(F32, ()))
    g.emit("sgd_update", g.graph.outputs["y"], g.graph.inputs[0], lr)
    with pytest.raises(GraphError, match="which is no param"):
        verify(g.graph)


def test_verifier_finds_wrong_result_types() -> None:
    g = small()
    g.graph.nodes[0].results[0].type = TensorType(F32, (9,))
    with pytest.raises(GraphError, match=r"should be f32\[2,3\]"):
        verify(g.graph)


@pytest.mark.parametrize("change", ["result", "operand", "attr", "op", "body"])
def test_verifier_infers_changed_nodes_again(change: str) -> None:
    inside, g = small(), Builder(Graph("changed"))
    (source,), body = inside.graph.inputs, inside.graph
    turned = inside.transpose(source, perm=(1, 0))
    x = g.input("x", source.type)
    first = g.emit("transpose", x, perm=(1, 0))
    g.emit("fusion", x, body=body, writes=())
    inferred: Inferred = {}
    verify(g.graph, inferred)
    if change == "result":
        first.result.type = source.type
    elif change == "operand":
        first.operands = (g.constant(np.zeros((5, 2), np.float32)),)
    elif change == "attr":
        first.attrs["perm"] = (0, 1)
    elif change == "op":
        first.op = "relu"
    else:
        body.outputs["y"] = turned
    with pytest.raises(GraphError, match="its results should be"):
        verify(g.graph, inferred)


def test_verifier_finds_stolen_results() -> None:
    g = small()
    result = g.graph.nodes[0].results[0]
    g.graph.nodes.append(Node("relu", (g.graph.inputs[0],), (result,)))
    with pytest.raises(GraphError, match=r"named 'relu_0'|belongs to"):
        verify(g.graph)


def test_verifier_finds_constants_of_another_type() -> None:
    g = small()
    g.graph.constants[Value("c", TensorType(F32, (2,)))] = np.zeros(3, np.float32)
    with pytest.raises(GraphError, match="constant %c"):
        verify(g.graph)


def test_clone_is_independent() -> None:
    graph = residual_net()
    before = print_graph(graph)
    copy = clone(graph)
    copy.nodes.clear()
    copy.outputs.clear()
    assert print_graph(graph) == before


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=7, unique=True))
def test_any_name_round_trips(names: list[str]) -> None:
    g = Builder(Graph(names[0]))
    with g.scope(names[1]):
        x = g.input(names[2], TensorType(F32, (2,)))
        y = g.mul(x, g.param(names[3], np.ones(2, np.float32)))
        again = g.emit("mul", *g.graph.nodes[0].operands)
    y.name, again.result.name = names[4], names[6]
    again.recomputes = y.node
    g.graph.recomputation = Recomputation((names[4],), 2, 64, 32)
    g.graph.checks_indices = False
    g.output(names[5], y)
    text = print_graph(g.graph)
    read = parse_graph(text, {names[3]: np.ones(2, np.float32)})
    assert print_graph(read) == text
    assert (read.name, read.nodes[0].scope) == (names[0], names[1])
    assert [value.name for value in read.values()] == [*names[2:5], names[6]]
    assert list(read.outputs) == [names[5]]
    assert read.nodes[1].recomputes is read.nodes[0]
    assert read.recomputation == g.graph.recomputation
    assert not read.checks_indices


def test_nodes_recompute_only_equal_nodes() -> None:
    g = Builder(Graph("twice"))
    x = g.input("x", TensorType(F32, (2,)))
    first, second, other = (g.emit(op, x) for op in ("exp", "exp", "relu"))
    second.recomputes = first
    verify(g.graph)
    other.recomputes = first
    with pytest.raises(GraphError, match=r"%relu_0 = relu %x: it does not recompute %exp_0"):
        verify(g.graph)
