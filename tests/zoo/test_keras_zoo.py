"""Some models of Keras's zoo (`//tests/zoo:keras_zoo` has all), the common models, and names.

Names of Keras layers and variables cannot inject code into generated C.
"""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import pockengine
from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.backends.c.tokens import ATTACKS, check_names
from pockengine.tests.zoo import common
from pockengine.tests.zoo.common_keras import resnet, resnet_model, transformer
from pockengine.tests.zoo.common_measure import check
from pockengine.tests.zoo.framework_step import compared
from pockengine.tests.zoo.keras_zoo import ZOO
from pockengine.tests.zoo.verdict import PASSED, judge

SOME = ["quantized", "two-heads", "u-net", "volumes"]


@pytest.mark.parametrize("name", SOME)
def test_step_matches_the_framework(name: str) -> None:
    verdict = judge(ZOO[name], compared)

    assert verdict.kind == PASSED, verdict.words


@pytest.mark.parametrize("build", [resnet, transformer])
def test_common_model_matches_our_own_ops(build: Callable[[], Graph]) -> None:
    check("keras", build.__name__, build())


def test_tuned_weights_are_exported_to_the_keras_model() -> None:
    model, (x, y) = resnet_model(), common.batches("resnet")[0]
    optimizer = keras.optimizers.SGD(momentum=0.9)
    compiled = pockengine.compile(model, (x,), loss="cross_entropy", optimizer=optimizer)
    with compiled.session() as session:
        for _ in range(3):
            session.train_step({"x": x, "target": y}, lr=common.LR)
        model.set_weights(compiled.tuned(session))
        (logits,) = session.predict({"x": x}).values()

    np.testing.assert_allclose(model(x, training=False), logits, rtol=1e-4, atol=1e-5)


def net(name: Callable[[str], str]) -> Graph:
    class Scale(keras.layers.Layer):
        def build(self, shape: tuple[int, ...]) -> None:
            self.scale = self.add_weight(shape=shape[1:], name=name("scale"))

        def call(self, x: object) -> object:
            return x * self.scale

    x = keras.Input((3,), batch_size=2, name=name("x"))
    y = Scale(name=name("own"))(keras.layers.Dense(4, name=name("dense"))(x))
    model = keras.Model(x, y, name=name("model"))
    return from_tensorflow(model, (np.ones((2, 3), np.float32),), loss="mse")


TAKEN = ("\\", ".", ">", "-", "\\.>-_x", "__attribute__", ">.\\")
"""Only characters that TensorFlow accepts in the name of a scope."""


@pytest.mark.parametrize("attack", TAKEN)
def test_layer_names_change_no_token(attack: str) -> None:
    check_names(net, [attack])


@pytest.mark.parametrize("attack", ATTACKS[:6], ids=range(6))
def test_names_that_tensorflow_rejects_are_an_error(attack: str) -> None:
    with pytest.raises(ImportModelError, match="cannot be traced"):
        net(lambda name: name + attack.replace("/", "|"))  # Keras refuses slashes
    keras.backend.clear_session()  # a failed trace leaves its scope


def test_variable_names_change_no_token() -> None:
    def variables(name: Callable[[str], str]) -> Graph:
        weight = tf.Variable(np.ones((3, 4), np.float32), name=name("weight"))
        function = tf.function(lambda x: tf.reduce_mean(tf.square(x @ weight)))
        return from_tensorflow(function, (np.ones((2, 3), np.float32),))

    check_names(variables, [attack for attack in ATTACKS if attack.isascii()])
