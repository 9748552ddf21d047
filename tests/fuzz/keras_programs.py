"""Programs in Keras: run a statement, compute gradients, join many programs in a model.

bazel run //tests/fuzz:keras_programs -- --programs 100000 --seed 0
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.fuzz.compare import Imported
from pockengine.tests.fuzz.program import LARGEST, Leaf, Program
from pockengine.tests.fuzz.programs import command
from pockengine.tests.fuzz.statements import statements

tf.get_logger().setLevel("ERROR")
tf.autograph.set_verbosity(0)
NAMESPACE = {"keras": keras, "ops": ops, "tf": tf}
KINDS = {tf.float32: "f", tf.int64: "i", tf.bool: "b"}


class KerasLanguage:
    """Keras on TensorFlow: statements run eagerly."""

    templates = statements("keras")
    sums = ("tf.reduce_sum({})", "tf.reduce_mean({0} * {0})", "tf.reduce_mean({})")
    heading = "import keras\nimport numpy as np\nimport tensorflow as tf\nfrom keras import ops"

    def start(self, leaves: Mapping[str, Leaf]) -> dict[str, Any]:
        """Return tensors."""
        return {name: tf.constant(leaf.data) for name, leaf in leaves.items()}

    def step(self, statement: str, values: dict[str, Any]) -> dict[str, Any]:
        """Run a statement."""
        scope = {**NAMESPACE, **values}
        exec(statement, scope)
        return {name: value for name, value in scope.items() if isinstance(value, tf.Tensor)}

    def kind(self, value: Any) -> str:
        """Return the kind of a tensor."""
        return KINDS.get(value.dtype, "")

    def finite(self, value: Any) -> bool:
        """Return whether all numbers are small and the tensor is not too large."""
        array = value.numpy()
        if value.dtype not in KINDS or not 0 < array.size <= 200:
            return False
        return value.dtype == tf.bool or bool((np.abs(array) < LARGEST).all())

    def references(
        self, programs: Sequence[Program], *, double: bool = False
    ) -> list[list[np.ndarray] | None]:
        """Return each program's loss and gradients, or None if TensorFlow does not run it."""
        if double:  # Keras computes only in float32
            return [_reference(program, noisy=True) for program in programs]
        return [_reference(program) for program in programs]

    def graph(self, programs: Sequence[Program]) -> Imported:
        """Import one model of all programs."""
        inputs = {
            f"p{place}_{name}": leaf.data
            for place, program in enumerate(programs)
            for name, leaf in program.leaves.items()
            if not leaf.trained
        }
        graph = from_tensorflow(Batch(programs, list(inputs)), tuple(inputs.values()))
        feed = {value.name: inputs[name] for value, name in zip(graph.inputs, inputs, strict=True)}
        known = {name.split("/")[-1]: name for name in graph.params}
        names = [
            {name: known[f"p{place}_{name}"] for name in program.trained}
            for place, program in enumerate(programs)
        ]
        outputs = [f"p{place}" for place in range(len(programs))]
        return Imported(graph, feed, outputs, names)


def _reference(program: Program, *, noisy: bool = False) -> list[np.ndarray] | None:
    leaves = {name: tf.constant(leaf.data) for name, leaf in program.leaves.items()}
    if noisy:
        leaves = {
            name: x * (1 + 1e-6) if x.dtype == tf.float32 else x for name, x in leaves.items()
        }
    expected = [leaves[name] for name in program.trained]
    try:
        with tf.GradientTape() as tape:
            tape.watch(expected)
            loss = program.function(NAMESPACE)(*leaves.values())
        grads = tape.gradient(loss, expected)
    except Exception:  # TensorFlow may raise anything for a program that it cannot differentiate
        return None
    return [np.asarray(tf.convert_to_tensor(x)) for x in (loss, *grads)]


class Batch(keras.Model):
    """Many programs side by side; it returns each result, and their sum as the loss."""

    def __init__(self, programs: Sequence[Program], inputs: Sequence[str]) -> None:
        super().__init__(name="batch")
        self.names = inputs
        self.programs = programs
        self.functions = [program.function(NAMESPACE) for program in programs]
        self.weight_leaves = {
            f"p{place}_{name}": self.add_weight(
                shape=program.leaves[name].data.shape,
                initializer=keras.initializers.Constant(program.leaves[name].data),
                name=f"p{place}_{name}",
            )
            for place, program in enumerate(programs)
            for name in program.trained
        }
        self.built = True

    def call(self, *inputs: Any) -> dict[str, Any]:
        known = {**dict(zip(self.names, inputs, strict=True)), **self.weight_leaves}
        outputs = {}
        for place, (program, function) in enumerate(
            zip(self.programs, self.functions, strict=True)
        ):
            names = [f"p{place}_{name}" for name in program.leaves]
            with tf.name_scope(f"p{place}"):
                outputs[f"p{place}"] = function(*(tf.convert_to_tensor(known[n]) for n in names))
        return {**outputs, "loss": tf.add_n(list(outputs.values()))}


if __name__ == "__main__":
    command(KerasLanguage())()
