"""Random programs in Keras."""

from pockengine.tests.fuzz.campaign import Draws, run_campaign
from pockengine.tests.fuzz.keras_programs import KerasLanguage


def test_programs_pass_or_are_refused() -> None:
    tally = run_campaign(KerasLanguage(), 48, Draws(batch=16), code_every=2)
    assert not [verdict.program.source() for verdict in tally.faults]
    assert tally.outcomes["passed"] >= 40
