"""Each public function of JAX has a sample or a reason to have none; some samples are run."""

from pockengine.tests.conformance import jax_samples
from pockengine.tests.conformance.functions import (
    by_function,
    function_of,
    public_functions,
    run_calls,
    summary,
)
from pockengine.tests.conformance.jax_functions import MODULES, TOTAL, calls
from pockengine.tests.fuzz.jax_programs import JaxLanguage

STRIDE = 16
"""Interval of calls that are run."""


def test_every_function_has_a_sample_or_a_reason() -> None:
    sampled = {function_of(call) for call in calls()}
    tables = (jax_samples.DEVICES, jax_samples.HOST, jax_samples.BY_DATA)
    excused = {name for table in (*tables, jax_samples.RANDOM) for name in table.split()}
    missing = [
        f"{prefix}.{name}"
        for prefix, module in MODULES.items()
        for name in sorted(public_functions(module) - excused)
        if f"{prefix}.{name}" not in sampled
    ]
    assert not missing, " ".join(missing)


def test_sampled_functions_are_never_wrong() -> None:
    found = run_calls(JaxLanguage(), calls()[::STRIDE], TOTAL, ("graph", "step", "C"))
    at_fault = [call for call, v in found.items() if v.outcome in ("wrong", "crashed")]
    assert not at_fault, "\n".join(f"{call}: {found[call].words}" for call in at_fault)
    assert sum(counts["passed"] for counts in summary(by_function(found)).values()) > 30


def test_error_names_a_function_without_a_rule() -> None:
    found = run_calls(JaxLanguage(), ["lax.clz(i)"], TOTAL, ("graph",))
    assert found["lax.clz(i)"].outcome == "refused"
    assert "clz" in found["lax.clz(i)"].words
