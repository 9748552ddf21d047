"""Nets that train random sets of channels: generated C under sanitizers against the oracle."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pockengine.compiler.optim import AdamW, Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.tests.backends.c.programs import convolutional_graph
from pockengine.tests.backends.c.trainings import check_training

WEIGHTS = {"first.weight": 3, "depthwise.weight": 8, "pointwise.weight": 8, "head.weight": 16}
"""Dense 3x3, depthwise, pointwise and linear weights, with their numbers of channels."""


@st.composite
def schemes(draw: st.DrawFn) -> Scheme:
    """A set of channels of each weight; every channel occurs in some set."""
    rules = []
    for name, count in WEIGHTS.items():
        found = draw(st.sets(st.integers(0, count - 1), min_size=1))
        rules.append((name, ParamChoice("channels", channels=tuple(sorted(found)))))
    return Scheme("drawn", tuple(rules))


LONE = Scheme("lone", tuple((name, ParamChoice("channels", channels=(2,))) for name in WEIGHTS))
SPREAD = Scheme(
    "spread",
    tuple(
        (name, ParamChoice("channels", channels=(0, count - 1))) for name, count in WEIGHTS.items()
    ),
)


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@example(scheme=LONE, optimizer=Sgd(0.9), micro_batches=1)
@example(scheme=SPREAD, optimizer=AdamW(), micro_batches=2)
@given(
    scheme=schemes(),
    optimizer=st.sampled_from([Sgd(0.9), AdamW()]),
    micro_batches=st.sampled_from([1, 2]),
)
def test_a_net_with_drawn_channels_trains_as_the_oracle(
    scheme: Scheme,
    optimizer: Optimizer,
    micro_batches: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rng = np.random.default_rng(2)
    batches = {
        "x": rng.standard_normal((4, 4, 12, 12, 3)).astype(np.float32),
        "labels": rng.integers(0, 5, (4, 4)),
    }
    training = Training(scheme, optimizer, micro_batches=micro_batches)
    folder: Path = tmp_path_factory.mktemp("drawn")
    program = check_training(convolutional_graph(), training, batches, folder)
    parts = {name: len(choice.channels) for name, choice in scheme.rules}
    states = {
        name: param.data.size / convolutional_graph().params[name.split(".", 2)[2]].data.size
        for name, param in program.params.items()
        if name.startswith("optimizer.")
    }
    for name, share in states.items():
        weight = name.split(".", 2)[2]
        assert share == parts[weight] / WEIGHTS[weight]
