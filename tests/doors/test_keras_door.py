"""The two models through the door of TensorFlow."""

from collections.abc import Callable

import keras
import numpy as np
import pytest

import pockengine
from pockengine.compiler.ir import Graph
from pockengine.tests.doors import spec
from pockengine.tests.doors.keras_door import resnet, resnet_model, transformer
from pockengine.tests.doors.measure import check


@pytest.mark.parametrize("build", [resnet, transformer])
def test_door_comes_to_the_same_model(build: Callable[[], Graph]) -> None:
    check("keras", build.__name__, build())


def test_tuned_weights_go_back_into_the_keras_model() -> None:
    model, (x, y) = resnet_model(), spec.batches("resnet")[0]
    optimizer = keras.optimizers.SGD(momentum=0.9)
    compiled = pockengine.compile(model, (x,), loss="cross_entropy", optimizer=optimizer)
    with compiled.session() as session:
        for _ in range(3):
            session.train_step({"x": x, "target": y}, lr=spec.LR)
        model.set_weights(compiled.tuned(session))
        (logits,) = session.predict({"x": x}).values()

    np.testing.assert_allclose(model(x, training=False), logits, rtol=1e-4, atol=1e-5)
