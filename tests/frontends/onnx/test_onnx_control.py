"""ONNX's If, Loop and Scan: resolved or unrolled if known at import, else refused clearly."""

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.tests.frontends.onnx.models import check, make, outputs_of, random

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Typed = dict[str, tuple[int, tuple[int, ...]]]


def body(
    nodes: list[NodeProto], inputs: Typed, outputs: Typed, *initializers: TensorProto
) -> GraphProto:
    """Build a graph attribute of an operator."""
    infos = [
        [helper.make_tensor_value_info(name, *kind) for name, kind in part.items()]
        for part in (inputs, outputs)
    ]
    return helper.make_graph(nodes, "body", *infos, initializers)


def loop(weight: np.ndarray, steps: int = 3, *, stop: str = "on") -> ModelProto:
    """Repeat x = tanh(x w) and stack the outputs of all steps; `w` belongs to the body."""
    nodes = [
        helper.make_node("MatMul", ["state", "w"], ["product"], name="product"),
        helper.make_node("Tanh", ["product"], ["next"]),
        helper.make_node("Identity", ["on"], ["same"]),
        helper.make_node("Identity", ["next"], ["row"]),
        helper.make_node("ReduceMax", ["next"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "half"], ["small"]),
    ]
    step = body(
        nodes,
        {"i": (INT64, ()), "on": (BOOL, ()), "state": (FLOAT, (2, 4))},
        {stop: (BOOL, ()), "next": (FLOAT, (2, 4)), "row": (FLOAT, (2, 4))},
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.float32(0.5), "half"),
    )
    node = helper.make_node("Loop", ["steps", "", "x"], ["last", "all"], name="again", body=step)
    outputs = {"last": (2, 4), "all": (steps, 2, 4)}
    return make([node], {"x": (2, 4)}, outputs, {"steps": np.asarray(steps)})


def test_a_loop_is_unrolled_and_its_own_weight_trains() -> None:
    weight, x = random(4, 4), random(2, 4)
    model = loop(weight, stop="same")
    graph = from_onnx(model)
    found = outputs_of(graph, {"x": x})
    target = random(2, 4, seed=1)
    trained = compile_program(from_onnx(model, loss="mse"), Training(optimizer=Sgd()), check=True)
    params = {"w": weight.copy()}

    run(trained.entries["train"].graph, {"x": x, "target": target, "lr": np.float32(1)}, params)
    tuned = to_initializers(model, graph, params)

    rows = _states(weight, x)
    np.testing.assert_allclose(found["all"], np.stack(rows), rtol=1e-5)
    np.testing.assert_allclose(found["last"], rows[-1], rtol=1e-5)
    np.testing.assert_allclose(weight - params["w"], _gradient(weight, x, target), rtol=1e-3)
    inner = tuned.graph.node[0].attribute[0].g.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(inner), params["w"])


def _states(weight: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """Return the loop's state after each of three steps."""
    states = [x.astype(np.float64)]
    for _ in range(3):
        states.append(np.tanh(states[-1] @ weight))
    return states[1:]


def _gradient(weight: np.ndarray, x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Differentiate the loop's loss by central differences."""

    def loss(w: np.ndarray) -> float:
        return float(np.square(_states(w, x)[-1] - target).mean())

    slopes = np.zeros(weight.shape)
    for place in np.ndindex(weight.shape):
        step = np.zeros(weight.shape)
        step[place] = 1e-5
        slopes[place] = (loss(weight + step) - loss(weight - step)) / 2e-5
    return slopes


def test_a_loop_with_a_data_dependent_end_is_refused() -> None:
    with pytest.raises(ImportModelError, match=r"Loop in again: a loop that a tensor ends, comput"):
        from_onnx(loop(random(4, 4), stop="small"))


def test_an_endless_loop_is_refused() -> None:
    with pytest.raises(ImportModelError, match="Loop in again: a loop of 3334 steps or more"):
        from_onnx(loop(random(4, 4), steps=10**9, stop="same"))


def test_a_failure_in_a_body_is_reported_once() -> None:
    model = loop(random(4, 4), stop="same")
    model.graph.node[0].attribute[0].g.node[1].op_type = "Multinomial"
    model.graph.node[0].attribute[0].g.node[1].name = "inside"

    with pytest.raises(ImportModelError) as raised:
        from_onnx(model)

    assert "inside" in str(raised.value)
    assert "again" not in str(raised.value)


def branch(condition: str) -> ModelProto:
    """y = x weight or y = -x, depending on whether x has two rows."""
    yes = body(
        [helper.make_node("MatMul", ["x", "weight"], ["product"])],
        {},
        {"product": (FLOAT, (2, 4))},
    )
    no = body([helper.make_node("Neg", ["x"], ["minus"])], {}, {"minus": (FLOAT, (2, 4))})
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Equal", ["shape", "pair"], ["each"]),
        helper.make_node("Gather", ["each", "first"], ["known"]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["open"]),
        helper.make_node("If", [condition], ["y"], name="choice", then_branch=yes, else_branch=no),
    ]
    weights = {"weight": random(4, 4), "pair": np.asarray(2), "first": np.asarray(0)}
    return make(nodes, {"x": ("n", 4)}, {"y": (2, 4)}, {**weights, "zero": np.float32(0)})


def test_a_branch_is_chosen_by_shapes() -> None:
    graph = check(branch("known"), {"x": random(2, 4)})

    assert graph.params["weight"].trainable


@pytest.mark.parametrize("rows", [2, 5])
def test_only_weights_of_the_chosen_branch_train(rows: int) -> None:
    branches = {}
    for name, op in (("then_branch", "Tanh"), ("else_branch", "Neg")):
        own = numpy_helper.from_array(random(4), f"{op}.scale")
        nodes = [
            helper.make_node("Constant", [], [own.name], value=own),
            helper.make_node("Mul", ["x", own.name], [f"{op}.x"]),
            helper.make_node("Add", [f"{op}.x", f"{op}.shift"], [f"{op}.z"]),
            helper.make_node(op, [f"{op}.z"], [f"{op}.y"]),
        ]
        shift = numpy_helper.from_array(random(4, seed=1), f"{op}.shift")
        branches[name] = body(nodes, {}, {f"{op}.y": (FLOAT, (rows, 4))}, shift)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Split", ["shape"], ["rows", "columns"]),
        helper.make_node("Squeeze", ["rows"], ["n"]),
        helper.make_node("Less", ["n", "three"], ["small"]),
        helper.make_node("If", ["small"], ["y"], **branches),
    ]
    weights = {"three": np.asarray(3)}

    graph = check(
        make(nodes, {"x": ("n", 4)}, {"y": ("n", 4)}, weights), {"x": random(rows, 4, seed=2)}
    )

    op = "Tanh" if rows < 3 else "Neg"
    assert {n: p.trainable for n, p in graph.params.items()} == {
        f"{op}.scale": True,
        f"{op}.shift": True,
    }


def test_a_data_dependent_branch_is_refused() -> None:
    with pytest.raises(ImportModelError, match="If in choice: a branch that a tensor decides"):
        from_onnx(branch("open"), shapes={"x": (2, 4)})


def test_a_scan_in_both_directions_along_another_axis() -> None:
    step = body(
        [
            helper.make_node("Add", ["total", "column"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["out"]),
        ],
        {"total": (FLOAT, (3,)), "column": (FLOAT, (3,))},
        {"sum": (FLOAT, (3,)), "out": (FLOAT, (3,))},
    )
    node = helper.make_node(
        "Scan",
        ["start", "x"],
        ["last", "y"],
        body=step,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
    )
    model = make([node], {"x": (3, 5)}, {"last": (3,), "y": (3, 5)}, {"start": random(3)})
    x = random(3, 5)

    found = outputs_of(from_onnx(model), {"x": x})

    sums = random(3)[:, None] + np.cumsum(x[:, ::-1], axis=1)
    np.testing.assert_allclose(found["y"], np.tanh(sums), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["last"], sums[:, -1], rtol=1e-5, atol=1e-6)
