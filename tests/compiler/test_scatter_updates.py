"""Embeddings whose read rows alone are updated: what the whole gradient would have done."""

import numpy as np
import pytest

from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir import I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam, Optimizer, Sgd
from pockengine.compiler.passes.differentiate import Clip
from pockengine.compiler.program import Program
from pockengine.compiler.target import OPTIONAL, Target

ROWS, WIDTH = 50, 3


def embedding(*, tied: bool = False) -> Graph:
    """loss = mean(take(table, ids)^2); `tied`: the table is read by a product too."""
    g = Builder(Graph("embedding"))
    table = g.param("table", np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype("f4"))
    ids = g.input("ids", TensorType(I64, (2, 4)))
    taken = g.reshape(g.take(table, ids, axis=0), shape=(8, WIDTH))
    y = g.matmul(taken, table, transpose_b=True) if tied else taken
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1), keepdims=False))
    return g.graph


def ops(program: Program) -> list[str]:
    return [node.op for node in program.entries["train"].graph.nodes]


def test_it_trains_as_the_whole_gradient_does() -> None:
    scattered = compile_program(embedding(), check=True)
    plain = Target(name="plain", passes=OPTIONAL - {"scatter_updates"})
    whole = compile_program(embedding(), target=plain, check=True)
    assert "take_update" in ops(scattered)
    assert "take_dx" not in ops(scattered)
    assert "take_dx" in ops(whole)
    ids = np.array([[3, 3, 3, 7], [0, 49, 60, -2]])  # often, and outside: dropped
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
def test_what_moves_every_row_keeps_the_whole_gradient(optimizer: Optimizer) -> None:
    program = compile_program(embedding(), Training(optimizer=optimizer), check=True)
    assert "take_update" not in ops(program)


def test_gradients_with_other_readers_stay() -> None:
    assert "take_update" not in ops(compile_program(embedding(tied=True), check=True))
    clipped = Training(clip=Clip(norm=1.0))
    assert "take_update" not in ops(compile_program(embedding(), clipped, check=True))
