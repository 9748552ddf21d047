"""Each function and layer of Keras has a sample or a reason to have none; some are run."""

from pockengine.tests.conformance import keras_layer_samples, keras_samples
from pockengine.tests.conformance.functions import (
    by_function,
    function_of,
    public_functions,
    run_calls,
    summary,
)
from pockengine.tests.conformance.keras_functions import MODULES, TOTAL, calls
from pockengine.tests.conformance.keras_layers import layer_of, outcomes, public_layers
from pockengine.tests.conformance.numpy_samples import read
from pockengine.tests.fuzz.keras_programs import KerasLanguage

STRIDE = 16
"""Interval of calls that are run."""

LAYERS = r"Dense\(3\)|Conv2D\(3, 3, groups|GRU\(3\) |ConvLSTM1D|GroupQuery|CategoryEncoding"
"""Samples of layers that are run."""

REFUSED = {
    "layers.CategoryEncoding(3, output_mode='one_hot')": "nothing would train",
    "layers.CategoryEncoding(3, output_mode='multi_hot')": "nothing would train",
    "layers.SpectralNormalization(layers.Dense(3))": "it changes a trainable variable",
}
"""Texts of the expected refusals."""


def test_every_function_has_a_sample_or_a_reason() -> None:
    sampled = {function_of(call) for call in calls()}
    missing = [
        f"{prefix}.{name}"
        for prefix, module in MODULES.items()
        for name in sorted(public_functions(module) - set(keras_samples.NOT_COMPARED))
        if f"{prefix}.{name}" not in sampled
    ]
    assert not missing, " ".join(missing)


def test_every_layer_has_a_sample_or_a_reason() -> None:
    sampled = {layer_of(line) for line in read("keras_layers.txt")}
    assert public_layers() - sampled == set(keras_layer_samples.NOT_COMPARED)


def test_sampled_functions_are_never_wrong() -> None:
    found = run_calls(KerasLanguage(), calls()[::STRIDE], TOTAL, ("graph", "step", "C"))
    at_fault = [call for call, v in found.items() if v.outcome in ("wrong", "crashed")]
    assert not at_fault, "\n".join(f"{call}: {found[call].words}" for call in at_fault)
    assert sum(counts["passed"] for counts in summary(by_function(found)).values()) > 20


def test_layers_match_keras_or_are_refused() -> None:
    found = outcomes(LAYERS, ("graph", "step", "C"))
    assert len(found) - len(REFUSED) >= 6
    for text, (outcome, words) in found.items():
        assert outcome == ("refused" if text in REFUSED else "passed"), f"{text}: {words}"
        assert REFUSED.get(text, "") in words
