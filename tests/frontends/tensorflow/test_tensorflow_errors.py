"""Import errors list all problems of a model, in the user's terms, with their lines."""

import re
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from pockengine.errors import ImportModelError, InternalError
from pockengine.frontends.tensorflow import from_tensorflow, trace

X = np.ones((2, 4), np.float32)


class Decider(keras.Model):
    """A model whose Python code branches on tensor values."""

    def call(self, x: Any) -> Any:
        return x * 2 if keras.ops.sum(x) > 0 else x


class Gamma(layers.Layer):
    """A layer of unsupported operators."""

    def call(self, x: Any) -> Any:
        return tf.raw_ops.BesselJ0(x=x) + tf.raw_ops.BesselJ1(x=x)


class Outer(layers.Layer):
    """A layer with a layer inside."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.inner = Gamma(name="gamma")

    def call(self, x: Any) -> Any:
        return self.inner(x) + 1


@tf.function
def loops(x: Any) -> Any:
    while tf.reduce_sum(x) < 10:
        x = x * 2
    return x


def calls_python(x: Any) -> Any:
    return tf.py_function(lambda y: y * 2, [x], tf.float32)


def looks_up_words(x: Any) -> Any:
    return tf.strings.length(tf.strings.as_string(x))


def selects(x: Any) -> Any:
    return tf.boolean_mask(x, x[:, 0] > 0)


def reshapes(x: Any) -> Any:
    return tf.reshape(x, [tf.cast(x[0, 0], tf.int32), -1])


def counts(x: Any) -> Any:
    return tf.range(tf.cast(x[0, 0], tf.int32))


def draws(x: Any) -> Any:
    return x + tf.random.poisson(x.shape, 2.0)


def fails(x: Any) -> Any:
    raise ValueError("no luck")


def rotates(x: Any) -> Any:
    return tf.cast(tf.complex(x, x), tf.complex64)


def takes_rate(lr: Any) -> Any:
    return lr


ERRORS: dict[str, tuple[Any, str]] = {
    "Python if": (
        Decider(name="decider"),
        r"decider decides by the values in a tensor \(.*not allowed\); a compiled model does the "
        r"same steps for any data: use tf.where, .* \(at .*test_tensorflow_errors.py:\d+\)",
    ),
    "while": (loops, "StatelessWhile.*: a loop that a tensor ends; unroll it"),
    "custom code": (calls_python, "EagerPyFunc .*calls back into Python, .* TensorFlow's op"),
    "strings": (looks_up_words, "AsString .*works on strings; apply the layer to the data before"),
    "data-dependent shape": (selects, "boolean_mask: the shape of its result depends on the"),
    "reshape": (reshapes, "Reshape .*: a shape, axis or place that is computed from values"),
    "range": (counts, "Range .*: the shape of its result depends on the values in a tensor"),
    "noise": (draws, "RandomPoissonV2 in .*: random counts, which take as many draws as they"),
    "user exception": (fails, r"fails cannot be traced with example inputs of shape \[\(2, 4\)\]: "
                              r"ValueError: no luck; .* \(at .*test_tensorflow_errors.py:\d+\)"),
    "complex": (rotates, "output output in the top level: complex numbers; return their real"),
    "a reserved name": (takes_rate, "input lr in the top level: the training step has an input of"),
    "no result": (lambda x: (), "returns no tensor; return what is to be computed"),
    "a number": (3, "takes a Keras model, a function of tensors, or the path of a model, not int"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error_names_the_problem_and_its_line(name: str) -> None:
    function, message = ERRORS[name]

    with pytest.raises(ImportModelError, match=message):
        from_tensorflow(function, (X,))


def test_our_own_exceptions_are_not_blamed_on_the_model() -> None:
    words = rf"TensorFlow traced rotates: TypeError: .* with .*keras {keras.__version__}"

    with patch.object(trace, "named_results", None), pytest.raises(InternalError, match=words):
        from_tensorflow(rotates, (X,))


def test_all_problems_are_listed_with_their_layers() -> None:
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4), Outer("first"), layers.Dense(3), Outer("second")],
        name="net",
    )

    with pytest.raises(ImportModelError) as caught:
        from_tensorflow(model, (X,))

    reason = "there is no rule for it; express it by other operators or leave it out of the module"
    assert str(caught.value).splitlines() == [
        "net cannot be imported: 4 unsupported operations",
        f"  2 x BesselJ0 in net/first/gamma, net/second/gamma: {reason}",
        f"  2 x BesselJ1 in net/first/gamma, net/second/gamma: {reason}",
    ]


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (np.array(["a", "b"]), "input 0 of fails holds strings or objects; give the numbers"),
        (X.astype(np.float64), "input 0 of fails is float64; use float32, int32, int64 or bool"),
        (np.zeros((0, 4), np.float32), r"input 0 of fails has the empty shape \(0, 4\)"),
    ],
)
def test_example_inputs_are_checked(example: np.ndarray, message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        from_tensorflow(fails, (example,))


def test_a_wrong_example_size_names_the_layer() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="first")], name="net")

    with pytest.raises(ImportModelError, match=r"layer .first. .* have value 4, .*\(2, 5\)"):
        from_tensorflow(model, (np.ones((2, 5), np.float32),))


LOOKUPS = {
    "ids": (layers.IntegerLookup(vocabulary=[1, 5], name="ids"), "LookupTableFindV2 .*/ids/.*:.*"),
    "buckets": (layers.Hashing(4, name="buckets"), "StringToHashBucketFast .*/buckets: .*"),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_are_left_to_the_data(name: str) -> None:
    layer, place = LOOKUPS[name]
    model = keras.Sequential([keras.Input((1,), dtype="int64"), layer, layers.Embedding(4, 3)])
    words = f"{place}apply the layer to the data before, and give the model"

    with pytest.raises(ImportModelError, match=words):
        from_tensorflow(model, (np.ones((2, 1), np.int64),))


def test_writes_to_a_trained_variable_are_refused() -> None:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = tf.Variable(tf.zeros((4,)), name="total")

        def __call__(self, x: Any) -> Any:
            self.total.assign_add(tf.reduce_sum(x, axis=0))
            return x * self.total

    with pytest.raises(
        ImportModelError, match=r"AssignAddVariableOp .*changes a trainable variable"
    ):
        from_tensorflow(Counter(), (X,))


def test_computing_with_a_counter_is_refused() -> None:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = tf.Variable(0, trainable=False, name="steps")

        def __call__(self, x: Any) -> Any:
            self.steps.assign_add(1)
            return x * tf.cast(self.steps, tf.float32)

    with pytest.raises(
        ImportModelError, match=re.escape("the state 'steps' of int32; only floats")
    ):
        from_tensorflow(Counter(), (X,))
