"""Frozen weights in fewer bits: each format is compiled, timed, trained and recorded."""

from pathlib import Path

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.farm.results.setup import Setup
from pockengine.finetune.task import Task
from pockengine.studies.course import SEEDS, Course, accuracies
from pockengine.studies.frozen.study import BATCH, WEIGHTS, compile_each, records_of
from pockengine.studies.sparse.sizes import Sizes
from pockengine.tests.finetune.tiny import digits, tiny_tuning

FROZEN = 64 * 64


def two_layers() -> Graph:
    """Digits through a wide layer, large enough to be stored in fewer bits, and a head."""
    random = np.random.default_rng(0)
    g = Builder(Graph("wide"))
    x = g.input("x", TensorType(F32, (BATCH, 8, 8, 1)))
    target = g.input("target", TensorType(I64, (BATCH,)))
    first = random.normal(0, 0.2, (64, 64)).astype(np.float32)
    flat = g.reshape(x, shape=(BATCH, 64))
    hidden = g.relu(g.matmul(flat, g.param("first.weight", first)))
    head = random.normal(0, 0.1, (64, 10)).astype(np.float32)
    bias = g.param("head.bias", np.zeros(10, np.float32))
    logits = g.add(g.matmul(hidden, g.param("head.weight", head)), bias)
    g.graph.outputs |= {"loss": g.cross_entropy(logits, target), "logits": logits}
    return g.graph


def test_every_storage_is_timed_trained_by_every_seed_and_recorded(tmp_path: Path) -> None:
    task = Task("digits", 10, tiny_tuning(240), digits(400).take(np.arange(240, 400)))
    ways = compile_each(two_layers(), "head-only", task, tmp_path)
    assert tuple(way.weights for way in ways) == WEIGHTS
    assert all(0 < way.step.low <= way.step.median <= way.step.high for way in ways)
    f32, int8, int4 = (way.weights_bytes for way in ways)
    scales = FROZEN // 32 * 2  # of 16 bits
    assert f32 - int8 >= 3 * FROZEN - 2 * scales
    assert int8 - int4 == FROZEN // 2

    course, sizes = Course("head-only", epochs=4, threads=1), Sizes(240, 48, 160)
    setup = Setup("tiny", "digits", BATCH, 1, commit="0")
    for way in ways:
        found = accuracies(way.artifact, (0.01,), task, course)
        records = records_of(setup, way, course, found, sizes)
        figures = {record.metric: record for record in records}
        accuracy = figures["accuracy"]
        assert 0.5 < accuracy.min <= accuracy.value <= accuracy.max
        assert accuracy.n == len(SEEDS)
        assert {record.dtype for record in records} == {way.weights}
        assert figures["weights_bytes"].value == way.weights_bytes
        assert figures["states_bytes"].value == way.states_bytes > 0
