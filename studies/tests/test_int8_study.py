"""The comparison of int8 with f32: every variant is compiled, tuned and evaluated."""

from dataclasses import replace

import numpy as np

from pockengine.finetune.task import Task
from pockengine.studies.course import SEEDS, Course
from pockengine.studies.int8.study import outcome_of
from pockengine.studies.int8.variants import VARIANTS
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.finetune.tiny import digits, tiny_subject, tiny_tuning


def test_int8_learns_the_digits_as_f32_does() -> None:
    task = Task("digits", 10, tiny_tuning(240), digits(400).take(np.arange(240, 400)))
    course = Course("full", epochs=8, threads=1)
    graph = tiny_subject().graph
    real, folded, integers = (
        outcome_of(replace(variant, rates=(0.02,)), graph, task, course) for variant in VARIANTS[:3]
    )
    assert len(integers.accuracies) == len(SEEDS)
    assert integers.mean > 0.6
    assert integers.mean > real.mean - 0.1
    assert integers.mean > folded.mean - 0.1


def test_a_rate_that_diverges_is_not_taken() -> None:
    task = Task("digits", 10, tiny_tuning(240), digits(400).take(np.arange(240, 400)))
    course = Course("full", epochs=2, threads=1)
    real = replace(VARIANTS[0], rates=(1e30, 0.02))

    outcome = outcome_of(real, tiny_subject().graph, task, course)

    assert outcome.rate == 0.02
    assert outcome.mean > 0.3


def test_folded_norms_are_gone_from_a_copy() -> None:
    graph = residual_net()

    folded = VARIANTS[1].graph(graph)

    assert VARIANTS[0].graph(graph) is graph
    assert any(node.op == "batch_norm" for node in graph.nodes)
    assert not any(node.op in ("batch_norm", "rsqrt") for node in folded.nodes)


def test_variants_have_different_settings() -> None:
    choices = [variant.quantize({}) for variant in VARIANTS]
    assert choices[:2] == [None, None]
    ways = [(one.gradients, one.qas) for one in choices if one is not None]
    assert ways == [("int8", True), ("f32", True), ("int8", False)]
