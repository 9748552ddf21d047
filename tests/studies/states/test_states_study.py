"""The comparison of stored weights and states: a way is compiled, tuned and judged."""

import numpy as np

from pockengine.compiler.storage import Storage
from pockengine.finetune.task import Task
from pockengine.studies.course import SEEDS, Course
from pockengine.studies.states.study import RATES, STORED, outcome_of
from pockengine.tests.finetune.tiny import digits, tiny_subject, tiny_tuning


def test_a_way_to_store_is_trained_by_every_seed_and_judged() -> None:
    task = Task("digits", 10, tiny_tuning(240), digits(400).take(np.arange(240, 400)))
    subject = (tiny_subject().graph, task)
    outcome = outcome_of(Storage(), 0.01, subject, Course("full", epochs=4, threads=1))
    assert len(outcome.accuracies) == len(SEEDS)
    assert min(outcome.accuracies) > 0.5
    assert outcome.states_bytes == 2 * outcome.weights_bytes


def test_every_scheme_begins_with_f32_which_chooses_the_rate() -> None:
    assert set(STORED) == set(RATES)
    assert all(ways[0] == Storage() for ways in STORED.values())
    assert {way.weights for way in STORED["full"]} == {"f32"}
