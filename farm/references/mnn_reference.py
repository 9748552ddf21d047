"""MNN's training in Python: modules by PyTorch's names, its own SGD and cross entropy.

MNN keeps activations in its own NC4HW4 order. Its losses are compared.
"""

from typing import Any

import MNN.expr as F
import MNN.nn as nn
import MNN.optim as optim
import numpy as np
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors
from pockengine.farm.references.nets import convolutional_net
from pockengine.models.registry import parse_model

Var = Any  # MNN has no types
TRAINED = 2  # of a module's parameters, of which a batch norm's statistics come after those


class MnnNet(nn.Module):
    """The net; its layers are made, with their weights, when it is first applied."""

    def __init__(self, data: JobData) -> None:
        """Take the job."""
        super().__init__()
        self.data = data
        self.made: dict[str, Any] = {}

    def forward(self, x: Var) -> Var:
        """Return the logits of pictures [N, C, H, W]."""
        job = self.data.job
        y = convolutional_net(self, F.convert(x, F.NC4HW4), parse_model(job.model), job.classes)
        return F.convert(y, F.NCHW)

    def convolution(self, x: Var, name: str, filters: int, kernel: int, stride: int = 1) -> Var:
        """Convolve without a bias, with padding that keeps the resolution (before the stride)."""
        return self._convolve(x, name, kernel, stride, depthwise=False)

    def depthwise(self, x: Var, name: str, kernel: int, stride: int) -> Var:
        """Filter each channel separately, without a bias."""
        return self._convolve(x, name, kernel, stride, depthwise=True)

    def _convolve(self, x: Var, name: str, kernel: int, stride: int, depthwise: bool) -> Var:
        weight = self.data.weights[f"{name}.weight"]
        if name not in self.made:
            channels = weight.shape[0] if depthwise else weight.shape[1]
            module = nn.conv(
                channels,
                weight.shape[0],
                [kernel, kernel],
                [stride, stride],
                [kernel // 2, kernel // 2],
                [1, 1],
                depthwise,
                False,
                F.Padding_Mode.CAFFE,
            )
            self._keep(name, module, [weight])
        return self.made[name].forward(x)

    def batch_norm(self, x: Var, name: str) -> Var:
        """Normalize each channel by the batch."""
        if name not in self.made:
            keys = ("weight", "bias", "running_mean", "running_var")
            values = [self.data.weights[f"{name}.{key}"] for key in keys]
            module = nn.batch_norm(len(values[0]), 4, 0.9, 1e-5)
            self._keep(name, module, [value.reshape(1, -1, 1, 1) for value in values])
        return self.made[name].forward(x)

    def linear(self, x: Var, name: str, outputs: int) -> Var:
        """Multiply by a matrix and add a bias, both as a 1x1 convolution has them."""
        weight, bias = (self.data.weights[f"{name}.{key}"] for key in ("weight", "bias"))
        if name not in self.made:
            module = nn.linear(weight.shape[1], weight.shape[0], True)
            self._keep(name, module, [bias.reshape(1, -1), weight])
        return self.made[name].forward(x)

    def relu(self, x: Var, most: float | None = None) -> Var:
        """Clamp to [0, most]."""
        return F.relu(x) if most is None else F.relu6(x, 0.0, most)

    def add(self, x: Var, y: Var) -> Var:
        """Add two tensors."""
        return F.add(x, y)

    def max_pool(self, x: Var) -> Var:
        """Take the largest of 3x3 by stride 2."""
        return F.max_pool(x, [3, 3], [2, 2], F.Padding_Mode.CAFFE, [1, 1])

    def global_average(self, x: Var) -> Var:
        """Average each channel over its picture."""
        size = x.shape[-1]
        means = F.avg_pool(x, [size, size], [1, 1])
        return F.reshape(F.convert(means, F.NCHW), [x.shape[0], x.shape[1]])

    def _keep(self, name: str, module: Any, values: list[NDArray[np.generic]]) -> None:
        loaded = [_var(value) for value in values]
        for var in loaded[:TRAINED]:
            var.fix_as_trainable()  # a constant would not be updated
        module.load_parameters(loaded)
        self.made[name] = module
        setattr(self, name.replace(".", "_"), module)


class MnnTrainer:
    """Trains a job's model step by step."""

    def __init__(self, data: JobData, threads: int) -> None:
        """Build the net; FarmError for one that is not trained whole."""
        job = data.job
        if not data.trains_all:
            raise FarmError("MNN trains everything here")
        F.lazy_eval(True)  # expressions evaluated at once have no gradient
        F.set_thread_number(threads)
        self.classes = job.classes
        self.batches = list(zip(data.images, data.labels, strict=True))
        self.net = MnnNet(data)
        self.net.train(True)
        self.net.forward(_var(self.batches[0][0]))
        self.net.train(True)
        self.optimizer = optim.SGD(self.net, job.learning_rate, job.momentum, job.weight_decay)

    def step(self, index: int) -> float:
        """Train on a batch and return its loss."""
        images, labels = self.batches[index]
        logits = self.net.forward(_var(images))
        targets = F.one_hot(F.const(labels.astype(np.int32), [len(labels)], F.NCHW, F.int),
                           self.classes, 1.0, 0.0)  # fmt: skip
        loss = nn.loss.cross_entropy(F.softmax(logits), targets)
        value = float(loss.read())  # before the update, or it would be of the next weights
        if not self.optimizer.step(loss):
            raise FarmError("MNN found no gradient of the loss")
        return value

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch."""
        return np.array(self.net.forward(_var(self.batches[index][0])).read())

    def tensors(self) -> Tensors:
        """Return nothing: only losses are compared."""
        return {}


def _var(value: NDArray[np.generic]) -> Var:
    return F.const(np.ascontiguousarray(value, np.float32), list(value.shape), F.NCHW)
