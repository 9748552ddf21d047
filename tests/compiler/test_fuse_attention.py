"""Attention is recognized and fused, with the same results; other patterns are not."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import BOOL, F32, I32, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.passes.base import run_passes
from pockengine.compiler.passes.cleanup.common_subexpressions import CommonSubexpressions
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.forward.fuse_attention import FuseAttention
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.passes.legal.legalize import RULES
from pockengine.compiler.target import FusionRules, Target

GPU = Target(name="gpu", attention=64)
ROWS, COLUMNS, SIZE, WIDTH = 5, 7, 3, 2
LOWEST = float(np.finfo(np.float32).min)
TRIANGLE = np.tri(ROWS, COLUMNS, dtype=np.bool_)
Mask = Callable[[Builder, Value], Value]


def _input(g: Builder, name: str, *shape: int, dtype: Any = F32) -> Value:
    return g.input(name, TensorType(dtype, shape))


def _chosen(number: float, *, inverted: bool = False, of: np.ndarray | None = None) -> Mask:
    """Mask scores with a number, by a condition that is an input or a constant."""

    def mask(g: Builder, scores: Value) -> Value:
        if of is None:
            seen = _input(g, "seen", ROWS, COLUMNS, dtype=BOOL)
        else:
            seen = g.constant(~of if inverted else of)
        sides = (g.scalar(number), scores) if inverted else (scores, g.scalar(number))
        return g.where(seen, *sides)

    return mask


def _added(*shape: int, first: bool = False) -> Mask:
    def mask(g: Builder, scores: Value) -> Value:
        bias = _input(g, "bias", *shape)
        return g.add(bias, scores) if first else g.add(scores, bias)

    return mask


def _then(*masks: Mask) -> Mask:
    def mask(g: Builder, scores: Value) -> Value:
        for each in masks:
            scores = each(g, scores)
        return scores

    return mask


MASKS: dict[str, Mask] = {
    "none": lambda g, scores: scores,
    "seen": _chosen(-math.inf),
    "hidden": _chosen(-math.inf, inverted=True),
    "seen-finite": _chosen(LOWEST),
    "triangle": _chosen(-math.inf, of=TRIANGLE),
    "upper-triangle": _chosen(-math.inf, inverted=True, of=TRIANGLE),
    "triangle-finite": _chosen(-2.0, of=TRIANGLE),
    "no-triangle": _chosen(-math.inf, of=np.ones_like(TRIANGLE)),
    "bias": _added(COLUMNS),
    "bias-first": _added(1, COLUMNS, first=True),
    "triangle-and-seen": _then(_chosen(-math.inf, of=TRIANGLE), _chosen(-math.inf)),
    "seen-and-triangle-finite": _then(_chosen(-2.0), _chosen(-2.0, of=TRIANGLE)),
    "bias-and-triangle": _then(_added(ROWS, COLUMNS), _chosen(-math.inf, of=TRIANGLE)),
    "lowest-bias-and-triangle": _then(_added(COLUMNS), _chosen(LOWEST, of=TRIANGLE)),
}
SCALES: dict[str, Mask] = {
    "as-is": lambda g, scores: scores,
    "mul": lambda g, scores: g.mul(g.scalar(0.25), scores),
    "div": lambda g, scores: g.div(scores, g.scalar(4.0)),
}
LEADS = ((), (4,), (2, 4))


def _attention(
    mask: Mask, scale: Mask = SCALES["mul"], lead: tuple[int, ...] = (2, 4), transposed: bool = True
) -> Graph:
    g = Builder(Graph("attention"))
    q = _input(g, "q", *lead, ROWS, SIZE)
    k = _input(g, "k", *lead, *((COLUMNS, SIZE) if transposed else (SIZE, COLUMNS)))
    v = _input(g, "v", *lead, *((WIDTH, COLUMNS) if transposed else (COLUMNS, WIDTH)))
    scores = mask(g, scale(g, g.matmul(q, k, transpose_b=transposed)))
    g.output("y", g.matmul(g.softmax(scores), v, transpose_b=transposed))
    return g.graph


def _count(graph: Graph, op: str = "attention") -> int:
    return sum(node.op == op for node in graph.nodes)


def _fused(graph: Graph, **options: Any) -> int:
    run_passes([FuseAttention(GPU, **options), DeadCode()], graph, check=True)
    return _count(graph)


def _differentiate(graph: Graph) -> None:
    """Add the gradients of a weighted sum of the result as outputs."""
    g = Builder(graph)
    y = graph.outputs["y"]
    weight = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    loss = g.reduce_sum(g.mul(y, g.constant(weight)), axes=tuple(range(len(y.shape))))
    found = backward(g, loss, dict.fromkeys(map(graph.input, "qkv")))
    for name in "qkv":
        g.output(f"d{name}", found[graph.input(name)])


def _results(graph: Graph) -> dict[str, np.ndarray]:
    """Run on random inputs. Biases mask a column like padding: some rows have no other column."""
    rng = np.random.default_rng(0)
    inputs = {}
    for value in graph.inputs:
        array = rng.standard_normal(value.shape).astype(np.float32)
        if value.dtype is BOOL:
            array = np.asarray(rng.random(value.shape) < 0.6)
            array[:, 0] = True
        elif value.name == "bias":
            array[..., 0] = LOWEST
        inputs[value.name] = array
    return run(graph, inputs)


def _assert_equal(found: Graph, expected: Graph) -> None:
    theirs = _results(expected)
    ours = _results(found)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize(("mask", "scale"), list(itertools.product(MASKS, SCALES)))
@pytest.mark.parametrize("transposed", [True, False])
def test_every_spelling_becomes_one_op_with_the_same_results(
    mask: str, scale: str, lead: tuple[int, ...], transposed: bool
) -> None:
    def build() -> Graph:
        return _attention(MASKS[mask], SCALES[scale], lead, transposed)

    fused = build()
    assert _fused(fused) == 1
    assert _count(fused, "softmax") == 0
    stored = build()
    for graph in (fused, stored):
        _differentiate(graph)
    _assert_equal(fused, stored)


@pytest.mark.parametrize("mask", ["none", "seen", "bias-and-triangle"])
def test_op_matches_simpler_ops(mask: str) -> None:
    fused, legal = (_attention(MASKS[mask]) for _ in range(2))
    for graph in (fused, legal):
        assert _fused(graph) == 1
        _differentiate(graph)
    lower(legal, RULES)
    assert not any(node.op.startswith("attention") for node in legal.nodes)
    _assert_equal(legal, fused)


SHARED = {
    "heads-first": ((2, 2, 1, COLUMNS, SIZE), (2, 2, 2, COLUMNS, SIZE), (0, 1, 2, 3, 4), 2),
    "heads-last": ((2, COLUMNS, 2, 1, SIZE), (2, COLUMNS, 2, 2, SIZE), (0, 2, 3, 1, 4), 2),
    "batches-inside": ((COLUMNS, 1, 2, SIZE), (COLUMNS, 4, 2, SIZE), (2, 1, 0, 3), 1),
    "not-neighbors": ((2, 1, 2, COLUMNS, SIZE), (2, 2, 2, COLUMNS, SIZE), (0, 1, 2, 3, 4), 4),
}
"""Keys, their shape after repetition, their transposition, and the number of heads then read.
"""


@pytest.mark.parametrize("name", SHARED)
def test_shared_keys_are_read_once(name: str) -> None:
    one, many, perm, groups = SHARED[name]

    def repeated(g: Builder, x: Value) -> Value:
        wide = g.transpose(g.broadcast_to(x, shape=many), perm=perm)
        return g.reshape(wide, shape=(2, 4, COLUMNS, SIZE))

    def build() -> Graph:
        g = Builder(Graph("shared"))
        q = _input(g, "q", 2, 4, ROWS, SIZE)
        keys, values = (repeated(g, _input(g, name, *one)) for name in "kv")
        g.output("y", g.matmul(g.softmax(g.matmul(q, keys, transpose_b=True)), values))
        return g.graph

    fused = build()
    assert _fused(fused) == 1
    (node,) = (node for node in fused.nodes if node.op == "attention")
    assert node.operands[1].shape == (2, COLUMNS, groups, SIZE)
    stored = build()
    for graph in (fused, stored):
        _differentiate(graph)
    _assert_equal(fused, stored)


def _read_scores(g: Builder, scores: Value) -> Value:
    g.output("scores", scores)
    return scores


STAY: dict[str, Mask] = {
    "scores that are read": _read_scores,
    "two masks that are added": _then(
        _added(COLUMNS), lambda g, scores: g.add(scores, _input(g, "more", ROWS, 1))
    ),
    "two numbers that hide": _then(_chosen(-1.0), _chosen(-2.0, of=TRIANGLE)),
    "a factor after the mask": _then(_added(COLUMNS), SCALES["mul"]),
    "a factor that is data": lambda g, scores: g.mul(scores, _input(g, "factor", 1)),
    "another function": lambda g, scores: g.tanh(scores),
    "a bias and a condition": _then(_added(COLUMNS), _chosen(-math.inf)),
}


@pytest.mark.parametrize("name", STAY)
def test_other_patterns_are_not_fused(name: str) -> None:
    assert _fused(_attention(STAY[name])) == 0


TRIANGLES = {
    *("seen", "hidden", "triangle", "upper-triangle", "triangle-and-seen"),
    *("bias-and-triangle", "no-triangle"),
}
"""Keys of MASKS that may replace every score of a row by -inf."""


@pytest.mark.parametrize("name", MASKS)
def test_some_targets_fuse_only_masked_attention(name: str) -> None:
    target = Target(attention=64, triangles_alone=True)
    graph = _attention(MASKS[name])
    FuseAttention(target).run(graph)
    assert _count(graph) == (name in TRIANGLES)


def test_gradients_of_the_same_operands_become_one_kernel() -> None:
    graph = _attention(MASKS["triangle"])
    assert _fused(graph) == 1
    _differentiate(graph)
    expected = _results(graph)
    rules = FusionRules(joint=frozenset(GRADIENTS))
    run_passes([CommonSubexpressions(), Fuse(Target(rules))], graph, check=True)
    (joint,) = (node for node in graph.nodes if node.op == "fusion")
    assert sorted(node.op for node in joint.attrs["body"].nodes) == sorted(GRADIENTS)
    for name, array in _results(graph).items():
        np.testing.assert_array_equal(array, expected[name])


def test_attention_with_dropout_is_not_fused() -> None:
    g = Builder(Graph("dropped"))
    q, k = (_input(g, name, ROWS, SIZE) for name in "qk")
    shares = g.softmax(g.matmul(q, k, transpose_b=True))
    shares = g.dropout(shares, _input(g, "seed", dtype=I32), p=0.5, stream=1)
    g.output("y", g.matmul(shares, k))
    assert _fused(g.graph) == 0


def test_frozen_masks_fuse_and_trained_masks_do_not() -> None:
    def mask(g: Builder, scores: Value) -> Value:
        table = g.param("table", np.ones((ROWS, COLUMNS), np.float32))
        return g.add(scores, g.mul(table, g.scalar(2.0)))

    assert _fused(_attention(mask), written=frozenset({"table"})) == 0
    assert _fused(_attention(mask), written=frozenset()) == 1


def test_long_heads_and_broadcast_batches_are_not_fused() -> None:
    g = Builder(Graph("long"))
    q, k = (_input(g, name, 1, 2, ROWS, 65) for name in "qk")
    v = _input(g, "v", 1, 2, ROWS, 8)
    wide = _input(g, "w", 2, ROWS, 8)
    g.output("y", g.matmul(g.softmax(g.matmul(q, k, transpose_b=True)), v))
    g.output("z", g.matmul(g.softmax(g.matmul(v, wide, transpose_b=True)), wide))
    assert _fused(g.graph) == 0
