"""Every layer of keras.layers, with samples, through the TensorFlow frontend.

bazel run //tests/conformance:keras_layers -- --only Conv --code

Layers are called in training mode. The weighted sum of the output, and the gradients of weights and
inputs, are compared with Keras's. A layer that draws random numbers is compared in inference mode.
"""

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click
import keras
import numpy as np
import tensorflow as tf
from keras import layers

from pockengine.errors import PockEngineError
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.conformance.keras_functions import total
from pockengine.tests.conformance.keras_layer_samples import ALIASES, NOT_COMPARED
from pockengine.tests.conformance.numpy_samples import leaves, read
from pockengine.tests.fuzz.campaign import METHODS, differs
from pockengine.tests.fuzz.compare import Imported

SCOPE = {"layers": layers, "keras": keras, "tf": tf, "np": np}
TOLERANCE = 3e-4
"""Maximum error relative to a tensor's largest element, or to 0.1 if that is smaller."""
SEED = 3


class Layer(keras.Model):
    """A layer applied to leaves. Floats are weights times an input of ones; others are inputs."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        super().__init__(name="sampled")
        keras.utils.set_random_seed(SEED)
        known = leaves()
        self.names = list(names)
        self.leaf_inputs = {name: known[name].data for name in names if not known[name].trained}
        self.leaf_weights = {
            name: self.add_weight(
                shape=known[name].data.shape,
                initializer=keras.initializers.Constant(known[name].data),
                name=f"leaf_{name}",
            )
            for name in names
            if name not in self.leaf_inputs
        }
        self.layer = eval(text, dict(SCOPE))

    def call(self, *inputs: Any, training: bool = False) -> dict[str, Any]:
        scale, *arguments = inputs
        values = dict(zip(self.leaf_inputs, arguments, strict=True))
        values |= {name: weight * scale for name, weight in self.leaf_weights.items()}
        on = [values[name] for name in self.names]
        own = {"training": training} if _takes_training(self.layer) else {}
        first = on if _takes_list(self.layer) else on[0]
        y = self.layer(first, *_other_inputs(self.layer, on), **own)
        return {"loss": total(y) + sum(total(weight) for weight in self.leaf_weights.values())}


def _takes_training(layer: Any) -> bool:
    return "training" in inspect.signature(layer.call).parameters


def _takes_list(layer: Any) -> bool:
    merging = (layers.Attention, layers.AdditiveAttention, layers.MixUp, layers.CutMix)
    base = getattr(layers.Add, "__bases__", (object,))[0]
    return isinstance(layer, (*merging[:2], base))


def _other_inputs(layer: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    return () if _takes_list(layer) else inputs[1:]


def judge_layer(text: str, names: Sequence[str], methods: Sequence[str]) -> tuple[str, str]:
    """Return "passed", "random", "refused", "wrong" or "crashed", and the message."""
    try:
        model = Layer(text, names)
        arguments = [np.ones(1, np.float32), *model.leaf_inputs.values()]
        model(*map(tf.constant, arguments))  # builds it
    except Exception as error:  # Keras may raise anything for an invalid sample
        return "unrunnable", f"{type(error).__name__}: {error}"
    try:
        graph = from_tensorflow(model, tuple(arguments), training=True)
        random = any(value.name == "seed" for value in graph.inputs)
        if random:
            graph = from_tensorflow(model, tuple(arguments), training=False)
            if any(value.name == "seed" for value in graph.inputs):
                return "random", "always"
        feed = {v.name: x for v, x in zip(graph.inputs, arguments, strict=True)}
        params = {name: name for name, param in graph.params.items() if param.trainable}
        imported = Imported(graph, feed, ["loss"], [params])
        found = {method: METHODS[method](imported)[0] for method in methods}
    except PockEngineError as error:
        return "refused", str(error)
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    expected = _reference(model, arguments, list(params), training=not random)
    for method, arrays in found.items():
        for name, ours, theirs in zip(["the loss", *params], arrays, expected, strict=True):
            if differs(ours, theirs, TOLERANCE):
                return "wrong", f"{name} by the {method}: {_short(ours)} and not {_short(theirs)}"
    return ("random", "") if random else ("passed", "")


def _reference(
    model: Layer, leaf_inputs: Sequence[np.ndarray], names: Sequence[str], *, training: bool
) -> list[np.ndarray]:
    by_path = {variable.path: variable for variable in model.trainable_variables}
    variables = [_named(by_path, name).value for name in names]
    with tf.GradientTape() as tape:
        loss = model(*map(tf.constant, leaf_inputs), training=training)["loss"]
        loss = tf.add_n([loss, *model.losses])  # the regularizers' penalties
    grads = tape.gradient(loss, variables, unconnected_gradients="zero")
    return [np.asarray(loss), *(np.asarray(tf.convert_to_tensor(x)) for x in grads)]


def _named(by_path: Mapping[str, Any], name: str) -> Any:
    return next(v for path, v in by_path.items() if path == name or path.endswith(f"/{name}"))


def _short(array: np.ndarray) -> str:
    return np.array2string(np.asarray(array), precision=5, threshold=12).replace("\n", "")


def layer_of(text: str) -> str:
    """Return the layer of a sample."""
    match = re.match(r"layers\.(\w+)\(", text)
    assert match is not None
    return match.group(1)


def public_layers() -> set[str]:
    """Return the names of all public layers, without aliases."""
    return {
        name
        for name in dir(layers)
        if not name.startswith("_") and inspect.isclass(getattr(layers, name))
    } - ALIASES


def outcomes(
    only: str = "", methods: Sequence[str] = ("graph", "step")
) -> dict[str, tuple[str, str]]:
    """Judge the samples that match this regular expression."""
    found = {}
    for line in read("keras_layers.txt"):
        if re.search(only, line):
            text, _, names = line.partition(" @ ")
            found[text] = judge_layer(text, names.split(), methods)
    return found


@click.command(help=__doc__)
@click.option("--only", default="", help="Run only the samples that match this regular expression.")
@click.option("--code", is_flag=True, help="Also run generated C.")
def main(only: str, code: bool) -> None:
    """Judge the samples and count the layers."""
    warnings.simplefilter("ignore")
    found = outcomes(only, ("graph", "step", "C") if code else ("graph", "step"))
    worst: dict[str, str] = {}
    order = ("unrunnable", "crashed", "wrong", "refused", "random", "passed")
    for text, (outcome, words) in found.items():
        if outcome not in ("passed", "random"):
            click.echo(f"{outcome:10} {text}  # {' | '.join(words.split(chr(10)))[:300]}")
        name = layer_of(text)
        worst[name] = min(worst.get(name, "passed"), outcome, key=order.index)
    counts = Counter(worst.values())
    parts = ", ".join(f"{counts[name]} {name}" for name in reversed(order) if counts[name])
    missing = sorted(public_layers() - set(worst) - set(NOT_COMPARED))
    click.echo(f"keras.layers: {counts.total()} layers: {parts}")
    if not only and missing:
        click.echo(f"without a sample: {' '.join(missing)}")
    raise SystemExit(any(outcome in ("crashed", "wrong") for outcome, _ in found.values()))


if __name__ == "__main__":
    main()
