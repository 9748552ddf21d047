"""Random programs in JAX."""

import pytest

from pockengine.tests.fuzz.campaign import Draws, run_campaign
from pockengine.tests.fuzz.jax_programs import JaxLanguage


@pytest.mark.parametrize("programs", [24, pytest.param(48, marks=pytest.mark.nightly)])
def test_programs_pass_or_are_refused(programs: int) -> None:
    tally = run_campaign(JaxLanguage(), programs, Draws(200000, batch=12), code_every=2)
    assert not [verdict.program.source() for verdict in tally.faults]
    assert tally.outcomes["passed"] >= programs * 5 // 6
