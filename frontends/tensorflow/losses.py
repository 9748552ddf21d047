"""Keras's losses, by name or as objects, traced together with the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import theirs
from pockengine.frontends.losses import LOSSES, TARGET, check_classes

OF_LABELS = {"categoricalgeneralizedcrossentropy", "circle", "crossentropy", "ctc"}
"""Losses that take labels in addition to those with "sparse" in their names."""


@dataclass(frozen=True)
class Term:
    """One output's loss: the input that it is compared with, and its weight in the sum."""

    output: str
    target: str
    loss: Any
    weight: float = 1.0

    def of(self, target: Any, output: Any) -> Any:
        """Return the weighted loss, one number."""
        value = theirs(loss_of(self.loss), target, output)
        return value if self.weight == 1 else value * self.weight


def terms_of(loss: Any, outputs: Sequence[str], model: Any) -> list[Term]:
    """Assign losses to outputs: a single loss to the first; a list or a dict to each its own.

    A dict has the names of outputs, or those of Keras's output layers; a pair is a loss and its
    weight. The targets are inputs of the outputs' names: `target.0`, `target.boxes`.
    """
    if not isinstance(loss, (list, Mapping)):
        return [_term(outputs[0], TARGET, loss)]
    ends = [name.removeprefix("output.") for name in outputs]
    if isinstance(loss, list):
        if len(loss) != len(outputs):
            raise ImportModelError(
                f"{len(loss)} losses for {len(outputs)} outputs ({', '.join(ends)}); give one for "
                "each, None for an output that has none"
            )
        named = dict(zip(ends, loss, strict=True))
    else:
        layers: dict[str, str] = dict(zip(getattr(model, "output_names", ()), ends, strict=False))
        named = {
            name if name in ends else layers.get(name, str(name)): x for name, x in loss.items()
        }
        unknown = sorted(set(named) - set(ends))
        if unknown:
            raise ImportModelError(
                f"a loss for {unknown[0]!r}, which is no output; there are {', '.join(ends)}"
            )
    terms = [
        _term(outputs[ends.index(end)], f"{TARGET}.{end}", entry)
        for end, entry in named.items()
        if entry is not None
    ]
    if not terms:
        raise ImportModelError("losses that are all None; give one for an output at least")
    return terms


def _term(output: str, target: str, entry: Any) -> Term:
    if isinstance(entry, tuple):
        if len(entry) != 2 or not isinstance(entry[1], (int, float)):
            raise ImportModelError(f"the loss {entry!r} of {output}; a pair is (loss, weight)")
        return Term(output, target, entry[0], float(entry[1]))
    return Term(output, target, entry)


def loss_of(loss: Any) -> Callable[[Any, Any], Any]:
    """Return a function of (target, output) that returns one number."""
    if loss == "cross_entropy":  # of logits, as in every frontend
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:
            raise ImportModelError(
                f"unknown loss {loss!r}; known are {', '.join(LOSSES)}, and the names of "
                "keras.losses; give one by loss= or --loss, or register your own by "
                "keras.saving.register_keras_serializable"
            ) from None
    if isinstance(loss, keras.losses.Loss):
        if loss.reduction not in ("sum", "mean", "sum_over_batch_size", "mean_with_sample_weight"):
            raise ImportModelError(
                f"the loss {loss.name} has reduction={loss.reduction!r}; a step needs one number: "
                "use 'sum_over_batch_size' or 'sum'"
            )
        return loss
    if not callable(loss):
        raise ImportModelError(
            f"a loss is a name, a loss of Keras or a function of (target, output), not "
            f"{type(loss).__name__}"
        )
    return lambda target, output: tf.reduce_mean(loss(target, output))


def target_spec(loss: Any, output: Any) -> tf.TensorSpec:
    """Return the spec of an output's target: labels for sparse losses.

    That of CTC has as many labels as there are frames, 0 after the last one.
    """
    name = loss_name(loss).lower().replace("_", "")
    shape = output.shape.as_list()
    if "sparse" in name or name in OF_LABELS:
        if name != "circle":  # it compares rows with each other
            check_classes(shape[-1])
        return tf.TensorSpec(shape[:-1], np.int64)
    return tf.TensorSpec(shape, np.float32)


def loss_name(loss: Any) -> str:
    """Return the name of a loss, a function's or a class's."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
