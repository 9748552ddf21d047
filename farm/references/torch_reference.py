"""A plain PyTorch training loop: the numbers that ours are checked against, and the first peer.

Deliberately simple: `torch.optim.SGD`, `cross_entropy`, the unmodified module. Frozen parameters
get no gradient. PyTorch cannot differentiate a share of a weight's channels: it computes the whole
gradient, and the frozen channels are restored after the update.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pockengine.errors import FarmError
from pockengine.farm.references.job import (
    Channels,
    JobData,
    Tensors,
    TrainingJob,
    check_channels,
)


class TorchTrainer:
    """Trains a module step by step on a job.

    With `channels_last` it does so in that memory format, with `compiled` under torch.compile.
    """

    def __init__(
        self,
        module: nn.Module,
        job: TrainingJob,
        channels_last: bool = False,
        compiled: bool = False,
    ) -> None:
        """Use the module itself: its weights are updated in place."""
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.module = module.to(memory_format=self.format)
        self.forward = torch.compile(self.module) if compiled else self.module
        self.module.train(job.batch_norm == "train")
        self.shares = _freeze(module, job.trainable)
        self.optimizer = torch.optim.SGD(
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            lr=job.learning_rate,
            momentum=job.momentum,
            weight_decay=job.weight_decay,
        )

    def batch(
        self, images: NDArray[np.generic], labels: NDArray[np.int64]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Turn images [N, C, H, W] or tokens [N, L], and labels [N], into the trainer's tensors."""
        inputs = torch.from_numpy(np.array(images))
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=self.format)
        return inputs, torch.from_numpy(np.array(labels))

    def predict(self, images: torch.Tensor) -> NDArray[np.float32]:
        """Return the logits of a batch by the running statistics; nothing is updated."""
        training = self.module.training
        with torch.no_grad():
            outputs = self.module.eval()(images)
            logits = (outputs["logits"] if isinstance(outputs, dict) else outputs).numpy().copy()
        self.module.train(training)
        return logits

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Do one training step and return its loss."""
        frozen = [(share, share.detach().clone()) for share in self.shares]
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self.forward(images)
        own = isinstance(outputs, dict)  # a model that has a loss of its own returns it
        loss = outputs["loss"] if own else nn.functional.cross_entropy(outputs, labels)
        loss.backward()
        self.optimizer.step()
        for share, before in frozen:
            share.copy_(before)
        return loss.item()

    def tensors(self) -> Tensors:
        """Return all parameters and buffers by name, in PyTorch's layouts."""
        return {
            name: tensor.detach().contiguous().numpy().copy()
            for name, tensor in self.module.state_dict().items()
        }


def train(
    module: nn.Module, data: JobData, channels_last: bool = False
) -> tuple[list[float], Tensors]:
    """Train a module on all batches of a job in this process: losses, then all tensors by name.

    The module starts from the job's weights, not from its own. Raises FarmError if they do not fit.
    """
    load_weights(module, data.weights)
    trainer = TorchTrainer(module, data.job, channels_last)
    losses = [
        trainer.step(*trainer.batch(images, labels))
        for images, labels in zip(data.images, data.labels, strict=True)
    ]
    return losses, trainer.tensors()


def load_weights(module: nn.Module, weights: Tensors) -> None:
    """Copy all weights by name into a module; FarmError for a mismatch."""
    state = {name: torch.from_numpy(np.array(tensor)) for name, tensor in weights.items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise FarmError(f"the job's weights do not fit the model: {error}") from error


def _freeze(module: nn.Module, trainable: Mapping[str, Channels] | None) -> list[torch.Tensor]:
    """Freeze all that is not trainable; return views of the channels that must stay as they are."""
    parameters = dict(module.named_parameters())
    if trainable is None:
        return []
    unknown = sorted(set(trainable) - set(parameters))
    if unknown:
        raise FarmError(f"the model has no parameter {unknown[0]!r}; it was to be trained")
    rests = []
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trainable)
        channels = trainable.get(name)
        if channels is None:
            continue
        axis = _channel_axis(module, name, parameter)
        size = parameter.shape[axis]
        check_channels(name, channels, size)
        for start, end in ((0, channels[0]), (channels[1], size)):
            if start < end:
                rests.append(parameter.detach().narrow(axis, start, end - start))
    return rests


def _channel_axis(module: nn.Module, name: str, parameter: nn.Parameter) -> int:
    """Return the axis of the input channels; a depthwise filter's and a vector's is the first."""
    owner = module.get_submodule(name.rpartition(".")[0])
    depthwise = isinstance(owner, nn.Conv2d) and owner.groups > 1 and parameter.shape[1] == 1
    return 0 if parameter.ndim == 1 or depthwise else 1
