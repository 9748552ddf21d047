"""The comparison of stored weights and states: each scheme has its baseline."""

from pockengine import Storage
from pockengine.studies.states.study import RATES, STORED


def test_every_scheme_begins_with_f32_which_chooses_the_rate() -> None:
    assert set(STORED) == set(RATES)
    assert all(ways[0] == Storage() for ways in STORED.values())
    assert {way.weights for way in STORED["full"]} == {"f32"}
