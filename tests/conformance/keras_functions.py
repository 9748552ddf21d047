"""Public functions of keras.ops, with sample calls, through the TensorFlow frontend.

bazel run //tests/conformance:keras_functions -- --only '^ops.image' --code
"""

from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from pockengine.tests.conformance.functions import command, public_functions
from pockengine.tests.conformance.numpy_samples import numpy_calls, read
from pockengine.tests.fuzz.keras_programs import KerasLanguage

MODULES = {"ops": ops, "ops.image": ops.image}
"""The modules whose functions have samples."""

TOTAL = "pockengine.tests.conformance.keras_functions.total"


def calls() -> list[str]:
    """Return all samples."""
    return [*numpy_calls("ops", public_functions(ops)), *read("keras_functions.txt")]


def total(results: Any) -> Any:
    """Return the sum of all numbers in a structure, each with a different weight."""
    terms = []
    for leaf in tf.nest.flatten(results):
        if isinstance(leaf, str):
            continue
        tensor = tf.convert_to_tensor(leaf)
        parts = (
            [tf.math.real(tensor), tf.math.imag(tensor)] if tensor.dtype.is_complex else [tensor]
        )
        for part in parts:
            size = int(np.prod(part.shape))
            weights = np.cos(np.arange(size) * 0.7 + 0.2).reshape(part.shape)
            terms.append(tf.reduce_sum(tf.cast(part, tf.float32) * weights.astype(np.float32)))
    return tf.add_n(terms or [tf.zeros([])])


if __name__ == "__main__":
    command(KerasLanguage(), TOTAL, calls, __doc__ or "")()
