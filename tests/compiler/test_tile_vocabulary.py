"""Cross entropy in blocks of classes: the same loss and gradients without whole logits."""

import math

import numpy as np
import pytest

from pockengine.compiler.autodiff import backward
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import I64
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.forward.prepare import SetTrainable
from pockengine.compiler.passes.forward.store_weights import StoreWeights
from pockengine.compiler.passes.memory.block_bytes import BUDGET_SHARE
from pockengine.compiler.passes.memory.tile_vocabulary import TileVocabulary
from pockengine.tests.compiler.transformers import Sizes, llama_net

ROWS, DEPTH, CLASSES = 6, 32, 900
BUDGET = BUDGET_SHARE * 4 * DEPTH * 300
"""Bytes of three blocks of classes."""


def net(*, transposed: bool, embedding: bool = False) -> Graph:
    """Build a linear layer with a bias and a soft cap, and its cross entropy."""
    rng = np.random.default_rng(7)
    g = Builder(Graph("head"))
    x = g.param("x", rng.standard_normal((2, ROWS // 2, DEPTH), np.float32))
    labels = g.input("labels", TensorType(I64, (ROWS,)))
    shape = (CLASSES, DEPTH) if transposed else (DEPTH, CLASSES)
    weight = g.param("weight", rng.standard_normal(shape, np.float32))
    bias = g.param("bias", rng.standard_normal(CLASSES, np.float32))
    hidden = g.reshape(x, shape=(ROWS, DEPTH))
    if embedding:
        hidden = g.add(hidden, g.take(weight, labels, axis=0))
    logits = g.matmul(hidden, weight, transpose_b=transposed)
    logits = g.reshape(g.add(logits, bias), shape=(2, ROWS // 2, CLASSES))
    logits = g.mul(g.tanh(g.div(logits, g.scalar(5.0))), g.scalar(5.0))
    g.output("loss", g.cross_entropy(g.reshape(logits, shape=(ROWS, CLASSES)), labels))
    return g.graph


def tiled(graph: Graph, trained: frozenset[str] = frozenset({"x"})) -> Graph:
    SetTrainable(trained).run(graph)
    copy = clone(graph)
    TileVocabulary(BUDGET).run(copy)
    DeadCode().run(copy)
    verify(copy)
    return copy


def with_gradient(graph: Graph) -> Graph:
    """Append the gradient of x as an output."""
    x = graph.params["x"].value
    graph.outputs["gradient"] = backward(Builder(graph), graph.outputs["loss"], {x: None})[x]
    return graph


def results(graph: Graph, labels: np.ndarray) -> dict[str, np.ndarray]:
    params = {name: param.contents.read() for name, param in graph.params.items()}
    return run(graph, {"labels": labels}, params)


LABELS = np.array([0, 899, 300, -100, 512, 299])


@pytest.mark.parametrize("storage", ["f32", "int4", "int8", "bf16"])
@pytest.mark.parametrize("transposed", [True, False])
def test_loss_and_gradient_match_whole_logits(storage: str, transposed: bool) -> None:
    whole = net(transposed=transposed)
    SetTrainable(frozenset({"x"})).run(whole)
    if storage != "f32":
        StoreWeights(storage, frozenset({"x", "bias"})).run(whole)
    parts = tiled(whole)
    products = [node for node in parts.nodes if node.op == "matmul"]
    assert len(products) == 3
    assert max(math.prod(node.result.shape) for node in parts.nodes) < DEPTH * CLASSES
    expected, actual = (results(with_gradient(g), LABELS) for g in (whole, parts))
    np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-6)
    np.testing.assert_allclose(actual["gradient"], expected["gradient"], rtol=1e-4, atol=1e-7)


def test_tied_embeddings_are_tiled() -> None:
    whole = net(transposed=True, embedding=True)
    parts = tiled(whole)
    assert sum(node.op == "matmul" for node in parts.nodes) == 3
    expected, actual = results(whole, abs(LABELS)), results(parts, abs(LABELS))
    np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-6)


@pytest.mark.parametrize("labels", [[0, 1, 2, 900, 4, 5], [0, 1, 2, -1, 4, 5], [-100] * 6])
def test_invalid_or_no_labels_make_the_loss_nan(labels: list[int]) -> None:
    whole = net(transposed=True)
    assert math.isnan(results(whole, np.array(labels))["loss"])
    assert math.isnan(results(tiled(whole), np.array(labels))["loss"])


def test_trained_heads_and_read_logits_stay_whole() -> None:
    whole = net(transposed=True)
    assert len(tiled(whole, frozenset({"x", "weight"})).nodes) == len(whole.nodes)
    whole = net(transposed=True)
    loss = whole.outputs["loss"].node
    assert loss is not None
    whole.outputs["logits"] = loss.operands[0]
    assert len(tiled(whole).nodes) == len(whole.nodes)


@pytest.mark.parametrize("storage", ["f32", "int4"])
def test_token_log_probabilities_are_tiled(storage: str) -> None:
    whole = net(transposed=True)
    g = Builder(whole)
    loss = whole.outputs["loss"].node
    assert loss is not None
    reshaped = loss.operands[0].node
    assert reshaped is not None
    logits = g.add(reshaped.operands[0], whole.params["bias"].value)
    index = g.maximum(whole.inputs[0], g.scalar(0, I64))
    column = g.reshape(index, shape=(*logits.shape[:2], 1))
    taken = g.take_along(g.log_softmax(logits), column, axis=2)
    whole.outputs["loss"] = g.reduce_mean(g.square(taken), axes=(0, 1, 2))
    DeadCode().run(whole)
    SetTrainable(frozenset({"x"})).run(whole)
    if storage != "f32":
        StoreWeights(storage, frozenset({"x", "bias"})).run(whole)
    parts = tiled(whole)
    assert sum(node.op == "matmul" for node in parts.nodes) == 3
    assert not any(node.op == "log_softmax" for node in parts.nodes)
    expected, actual = (results(with_gradient(graph), LABELS) for graph in (whole, parts))
    np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-6)
    np.testing.assert_allclose(actual["gradient"], expected["gradient"], rtol=1e-4, atol=1e-7)


def test_small_logits_stay_whole() -> None:
    whole = net(transposed=True)
    copy = clone(whole)
    TileVocabulary(BUDGET_SHARE * 4 * DEPTH * CLASSES).run(copy)
    assert len(copy.nodes) == len(whole.nodes)


@pytest.mark.parametrize("share", [1, 1.2, 2])
def test_a_budget_never_enlarges_the_arena(share: float) -> None:
    graph = llama_net(1, 32, Sizes(4, 32, 2, 48, 4096))

    def arena(budget: int | None) -> int:
        training = Training("lora-4", Sgd(), memory_budget=budget, outputs=())
        return compile_program(graph, training).arena_bytes

    whole = arena(None)
    assert arena(int(share * whole)) <= whole


def test_types() -> None:
    assert tiled(net(transposed=True)).outputs["loss"].type == TensorType(F32, ())
