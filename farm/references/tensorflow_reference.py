"""A plain TensorFlow training step: GradientTape, cross entropy, SGD with PyTorch's meaning.

The update is TensorFlow's own momentum kernel, whose formula is PyTorch's (Keras's optimizers decay
weights differently, and cost more). The tape watches only trained variables, so frozen ones cost no
gradient. For a share of a weight's channels the full gradient is masked: TensorFlow cannot compute
less.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import (
    Channels,
    JobData,
    Tensors,
    TrainingJob,
    check_channels,
)
from pockengine.farm.references.keras_models import KerasNet, build_keras
from pockengine.farm.references.nets import FAMILIES as CONVOLUTIONAL
from pockengine.farm.references.tensorflow_arrays import TransformerNet
from pockengine.farm.references.transformer_nets import FAMILIES as TRANSFORMERS
from pockengine.models.registry import parse_model


@dataclass(frozen=True)
class TrainedVariable:
    """A variable that is trained, its momentum (None: none), and the mask of its channel share."""

    variable: tf.Variable
    momentum: tf.Variable | None
    mask: tf.Tensor | None


class TensorFlowTrainer:
    """Trains a job's model step by step: op by op, or (`graph`, `xla`) as one tf.function."""

    def __init__(
        self, data: JobData, graph: bool, xla: bool = False, nets: "KerasNets | None" = None
    ) -> None:
        """Take the model of `nets`, with the job's weights, and convert batches to [N, H, W, C]."""
        self.job = data.job
        self.tensors, self.model, self.trained = _build(data, nets or KerasNets())
        pictures = data.images.ndim == 5
        self.batches = [
            (tf.constant(np.moveaxis(images, 1, -1) if pictures else images), tf.constant(labels))
            for images, labels in zip(data.images, data.labels, strict=True)
        ]
        # One tf.function per trainer: a shared one would retrace for every new model.
        compiled = graph or xla
        self._run = tf.function(self.train, jit_compile=xla) if compiled else self.train

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch by the running statistics; nothing is updated."""
        return self.model(self.batches[index][0], training=False).numpy()

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables that a step reads or writes."""
        whole = getattr(self.model, "variables", ())
        whole = whole.values() if isinstance(whole, dict) else whole
        own = [getattr(variable, "value", variable) for variable in whole]
        own = [x if isinstance(x, tf.Variable) else y for x, y in zip(own, whole, strict=True)]
        return [*own, *(each.momentum for each in self.trained if each.momentum is not None)]

    def step(self, index: int) -> float:
        """Train on a batch and return its loss."""
        return float(self._run(*self.batches[index]))

    def train(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Do a step on tensors, to be traced or run at once; return the loss."""
        variables = [trained.variable for trained in self.trained]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            logits = self.model(images, training=self.job.batch_norm == "train")
            if len(logits.shape) == 3:  # a language model: the next token of each but the last
                logits, labels = logits[:, :-1], images[:, 1:]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        for trained, gradient in zip(self.trained, tape.gradient(loss, variables), strict=True):
            self._update(trained, gradient)
        return loss

    def _update(self, trained: TrainedVariable, gradient: tf.Tensor) -> None:
        """Apply v = momentum v + g + decay w, w = w - rate v in place."""
        job = self.job
        if isinstance(gradient, tf.IndexedSlices):  # an embedding's: only the rows that were read
            rows = tf.IndexedSlices(job.learning_rate * gradient.values, gradient.indices)
            trained.variable.scatter_sub(rows)
            return
        if job.weight_decay:
            gradient = gradient + job.weight_decay * trained.variable
        if trained.mask is not None:
            gradient = gradient * trained.mask
        if trained.momentum is None:
            tf.raw_ops.ResourceApplyGradientDescent(
                var=trained.variable.handle, alpha=job.learning_rate, delta=gradient
            )
        else:
            tf.raw_ops.ResourceApplyMomentum(
                var=trained.variable.handle,
                accum=trained.momentum.handle,
                lr=job.learning_rate,
                grad=gradient,
                momentum=job.momentum,
            )


class KerasNets:
    """The last Keras model, for the next job of it: to build one takes a minute under emulation."""

    def __init__(self) -> None:
        """Start without a model."""
        self._key: tuple[str, int, int] | None = None
        self._net: KerasNet | None = None

    def find(self, data: JobData) -> KerasNet:
        """Return a job's model with the job's weights."""
        key = (data.job.model, data.job.classes, data.images.shape[1])
        if self._net is None or key != self._key:
            self._key, self._net = key, build_keras(*key)
        self._net.load(data.weights)
        return self._net


def _build(
    data: JobData, nets: KerasNets
) -> tuple[Callable[[], Tensors], Callable[..., tf.Tensor], list[TrainedVariable]]:
    """Return all tensors, the model, and its trained params."""
    job = data.job
    family = parse_model(job.model).family
    if family not in (*CONVOLUTIONAL, *TRANSFORMERS):
        raise FarmError(f"{family} has no TensorFlow form here; pick another engine")
    if family in CONVOLUTIONAL:
        net = nets.find(data)
        return net.tensors, net.model, _choose(net, job)
    if job.momentum:
        raise FarmError(f"{job.model} is trained by plain SGD here")
    plain = TransformerNet(job.model, data.weights)
    trainable = job.trainable or dict.fromkeys(plain.variables)
    if any(channels is not None for channels in trainable.values()):
        raise FarmError(f"of {job.model} whole tensors are trained here, and no channels")
    _check_known(trainable, plain.variables)
    trained = [TrainedVariable(plain.variables[name], None, None) for name in trainable]
    return plain.tensors, plain, trained


def _choose(net: KerasNet, job: TrainingJob) -> list[TrainedVariable]:
    """Return the trained params; FarmError for a name that the model lacks."""
    trainable: Mapping[str, Channels] = job.trainable or {
        name: None for name, parameter in net.parameters.items() if not parameter.is_buffer
    }
    _check_known(trainable, net.parameters)
    return [_trained(net, name, channels, job) for name, channels in trainable.items()]


def _check_known(names: Iterable[str], known: Container[str]) -> None:
    unknown = sorted(name for name in names if name not in known)
    if unknown:
        raise FarmError(f"the model has no parameter {unknown[0]!r}; it was to be trained")


def _trained(net: KerasNet, name: str, channels: Channels, job: TrainingJob) -> TrainedVariable:
    """Create the momentum and the mask of one parameter."""
    parameter = net.parameters[name]
    # Keras 3 wraps the variable that TensorFlow's own kernels work on.
    variable = getattr(parameter.variable, "value", parameter.variable)
    variable = variable if isinstance(variable, tf.Variable) else parameter.variable
    shape = [int(size) for size in variable.shape]
    momentum = tf.Variable(tf.zeros(shape)) if job.momentum else None
    mask = None
    if channels is not None:
        size = shape[parameter.channel_axis]
        check_channels(name, channels, size)
        row = [1.0 if index in range(*channels) else 0.0 for index in range(size)]
        spread = [1] * len(shape)
        spread[parameter.channel_axis] = -1
        mask = tf.reshape(tf.constant(row), spread)
    return TrainedVariable(variable, momentum, mask)
