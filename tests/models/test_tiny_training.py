"""Handwritten schemes of tiny-training: accepted files, errors, and counted memory."""

from typing import Any

import pytest

from pockengine.errors import SchemeError
from pockengine.models.tiny_training import (
    F32,
    Config,
    Saved,
    convert,
    published,
    read_config,
    saved_bits,
)
from pockengine.tests.compiler.small_nets import residual_net

LISTS = {
    "enable_backward_config": 1,
    "n_bias_update": 22,
    "n_weight_update": 0,
    "weight_update_ratio": [1, 1, 0.125],
    "manual_weight_idx": [21, 24, 36],
    "weight_select_criteria": "magnitude+",
    "pw1_weight_only": 0,
}


def test_command_line_lists_match_program_lists() -> None:
    text = {**LISTS, "weight_update_ratio": "1-1-0.125", "manual_weight_idx": "21-24-36"}

    assert read_config(text, "here") == read_config(LISTS, "here")
    assert read_config(LISTS, "here") == Config(22, ((21, 1.0), (24, 1.0), (36, 0.125)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"freeze_fc": 1}, r"cannot read \['freeze_fc'\]"),
        ({"n_weight_update": 6}, r"cannot read \['n_weight_update'\]; list the weights"),
        ({"pw1_weight_only": 1}, "pw1_weight_only"),
        ({"n_bias_update": "all"}, "whole n_bias_update"),
        ({"n_bias_update": -1}, "whole n_bias_update"),
        ({"weight_update_ratio": [1, 1]}, "2 for 3"),
        ({"weight_update_ratio": "1-a-1"}, "expected numbers"),
        ({"weight_update_ratio": [1, -1, 1]}, "below 0"),
        ({"weight_update_ratio": [1, float("nan"), 1]}, "below 0"),
        ({"weight_update_ratio": None}, "expected numbers"),
        ({"manual_weight_idx": [24, 21, 36]}, "whole and rising"),
        ({"manual_weight_idx": [21, 24, 36.5]}, "whole and rising"),
        ({"weight_select_criteria": "magnitude-"}, "criterion"),
        ({"weight_select_criteria": ["random"]}, "criterion"),
    ],
)
def test_errors_explain_invalid_configs(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        read_config(LISTS | change, "here")


def test_indices_become_names() -> None:
    scheme = convert(Config(2, ((1, 0.0), (2, 0.5))), residual_net(), "half")

    assert {name: str(choice) for name, choice in scheme.rules} == {
        "fc.weight": "full",
        "fc.bias": "full",
        "b.1.bias": "full",
        "c.1.bias": "full",
        "c.0.weight": '{ share = 0.5, by = "magnitude" }',
    }


def test_share_above_one_is_a_channel_count() -> None:
    graph = residual_net()

    scheme = convert(Config(2, ((1, 8.0), (2, 3.0)), "random"), graph, "some")

    assert dict(scheme.rules)["b.0.weight"].kind == "full"
    trained = scheme.resolve(graph)["c.0.weight"]
    assert trained is not None
    assert len(trained) == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(4, ()), "4 biases of residual, which has 3 convolutions"),
        (Config(1, ((1, 1.0),)), "weight of convolution 1 should train, but only .* 2 to 2"),
        (Config(1, ((3, 1.0),)), "convolution 3"),
        (Config(2, ((2, 9.0),)), "9 channels of .*, which has 8"),
    ],
)
def test_schemes_for_other_nets_are_refused(config: Config, message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        convert(config, residual_net(), "theirs")


def test_saved_activations_are_counted_in_bits() -> None:
    """The last two convolutions output 6x6 pixels of 8 channels; the classifier reads 8."""
    config, pixels = Config(2, ((1, 0.25), (2, 0.5))), 6 * 6
    graph = residual_net(batch=1)

    masks, biases = 2 * pixels * 8, 2 * 8 * 32
    saved, weights = pixels * (2 + 4), 2 * 3 * 3 + 4 * 8
    assert saved_bits(config, graph) == Saved(8 * 8 + masks + saved * 8, biases + weights * 8)
    assert saved_bits(config, graph, F32) == Saved(
        8 * 32 + masks + saved * 32, biases + weights * 32
    )


def test_fifteen_schemes_are_published() -> None:
    budgets: dict[str, list[int]] = {}
    for scheme in published():
        budgets.setdefault(scheme.net, []).append(scheme.budget_kb)

    assert budgets == {
        "mcunet-5fps": [49, 74, 99, 124, 148],
        "mbv2-w0.35": [49, 73, 99, 123, 138],
        "proxyless-w0.3": [49, 74, 98, 120, 148],
    }
