"""Embeddings that update only the rows read, with the same result as the whole gradient."""

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam, AdamW, Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.passes.backward.scatter_updates import ScatterUpdates
from pockengine.compiler.program import Program
from pockengine.compiler.target import OPTIONAL, InPlace, Target
from pockengine.tests.compiler.in_place import run_in_place

ROWS, WIDTH = 50, 3


def embedding(*, tied: bool = False, width: int = WIDTH) -> Graph:
    """loss = mean(take(table, ids)^2); `tied`: the table is also read by a product."""
    g = Builder(Graph("embedding"))
    table = g.param("table", np.random.default_rng(0).standard_normal((ROWS, width)).astype("f4"))
    ids = g.input("ids", TensorType(I64, (2, 4)))
    taken = g.reshape(g.take(table, ids, axis=0), shape=(8, width))
    y = g.matmul(taken, table, transpose_b=True) if tied else taken
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1), keepdims=False))
    return g.graph


def ops(program: Program) -> list[str]:
    return [node.op for node in program.entries["train"].graph.nodes]


def test_row_updates_match_the_whole_gradient() -> None:
    scattered = compile_program(embedding(), check=True)
    plain = Target(name="plain", passes=OPTIONAL - {"scatter_updates"})
    whole = compile_program(embedding(), target=plain, check=True)
    assert "take_update" in ops(scattered)
    assert "take_dx" not in ops(scattered)
    assert "take_dx" in ops(whole)
    ids = np.array([[3, 3, 3, 7], [0, 49, 60, -2]])  # repeated, and out of range: dropped
    batch = {"ids": ids, "lr": np.asarray(0.5, np.float32)}
    tables = []
    for program in (scattered, whole):
        params = {name: param.data.copy() for name, param in program.params.items()}
        for _ in range(3):
            run(program.entries["train"].graph, batch, params)
        tables.append(params["table"])
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-6)
    untouched = np.setdiff1d(np.arange(ROWS), [0, 3, 7, 49])
    np.testing.assert_array_equal(tables[0][untouched], embedding().params["table"].data[untouched])


@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9), Sgd(weight_decay=0.1), Adam()], ids=repr)
def test_updates_of_every_row_use_the_whole_gradient(optimizer: Optimizer) -> None:
    program = compile_program(embedding(), Training(optimizer=optimizer), check=True)
    assert "take_update" not in ops(program)


@pytest.mark.parametrize("optimizer", [Sgd(), AdamW()], ids=repr)
def test_tied_tables_add_rows_to_one_gradient(optimizer: Optimizer) -> None:
    """In place: the arena has room for one gradient of the table, 4,800 bytes, not for two."""
    graph, training = embedding(tied=True, width=24), Training(optimizer=optimizer)
    adding = Target(name="adding", in_place=InPlace({"take_add": (0,)}))
    plain = Target(name="plain", passes=OPTIONAL - {"scatter_updates"})
    added, whole = (
        compile_program(graph, training, target=target, check=True) for target in (adding, plain)
    )
    assert "take_add" in ops(added)
    assert "take_dx" not in ops(added)
    sizes = [program.entries["train"].plan.size for program in (added, whole)]
    assert 4800 < sizes[0] < 9600 < sizes[1]
    found, expected = (trained_in_place(program) for program in (added, whole))
    for name, data in expected.items():
        np.testing.assert_allclose(found[name], data, rtol=1e-5, atol=1e-6)


def trained_in_place(program: Program) -> dict[str, np.ndarray]:
    """Return params and states after three steps in one arena, with repeated and invalid ids."""
    entry, params = program.entries["train"], {n: p.data.copy() for n, p in program.params.items()}
    inputs = {
        "ids": np.array([[3, 3, 3, 7], [0, 49, 60, -2]]),
        "lr": np.asarray(0.1, np.float32),
        "step": np.asarray(1, np.int32),
    }
    for _ in range(3):
        run_in_place(
            entry, {value.name: inputs[value.name] for value in entry.graph.inputs}, params
        )
    return params


def test_sums_with_as_many_added_rows_stay_whole() -> None:
    g = Builder(Graph("sum"))
    rows, total = (g.input(name, TensorType(F32, (4, 3))) for name in ("rows", "total"))
    places = g.input("places", TensorType(I64, (4,)))
    g.output("sum", g.add(total, g.take_dx(rows, places, axis=0, input_shape=(4, 3))))
    ScatterUpdates().run(g.graph)
    assert [node.op for node in g.graph.nodes] == ["take_dx", "add"]


def test_gradients_with_other_readers_stay_whole() -> None:
    assert "take_update" not in ops(compile_program(embedding(tied=True), check=True))
    clipped = Training(clip=Clip(norm=1.0))
    assert "take_update" not in ops(compile_program(embedding(), clipped, check=True))
