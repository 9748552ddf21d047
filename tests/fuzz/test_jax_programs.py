"""Random programs in JAX."""

from pockengine.tests.fuzz.campaign import Draws, run_campaign
from pockengine.tests.fuzz.jax_programs import JaxLanguage


def test_programs_pass_or_are_refused() -> None:
    tally = run_campaign(JaxLanguage(), 24, Draws(200000, batch=12), code_every=2)
    assert not [verdict.program.source() for verdict in tally.faults]
    assert tally.outcomes["passed"] >= 20
