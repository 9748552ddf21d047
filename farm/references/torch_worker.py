"""The worker process for PyTorch; see serve.py for its protocol."""

import numpy as np
import torch
from numpy.typing import NDArray

from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.job import JobData, Tensors
from pockengine.farm.references.serve import serve
from pockengine.farm.references.torch_reference import TorchTrainer, load_weights
from pockengine.models.registry import parse_model


def prepare(data: JobData, engine: str, threads: int) -> "PreparedTorch":
    """Build the model of the registry with the job's weights."""
    torch.set_num_threads(threads)
    module = parse_model(data.job.model).build(data.job.classes)
    load_weights(module, data.weights)
    found = find_engine(engine)
    trainer = TorchTrainer(module, data.job, found.channels_last, found.compiled)
    return PreparedTorch(trainer, data)


class PreparedTorch:
    """A trainer with its batches as tensors, so that only the step is timed."""

    def __init__(self, trainer: TorchTrainer, data: JobData) -> None:
        """Convert the batches."""
        self.trainer = trainer
        self.batches = [
            trainer.batch(images, labels)
            for images, labels in zip(data.images, data.labels, strict=True)
        ]

    def step(self, index: int) -> float:
        """Train on one batch and return its loss."""
        return self.trainer.step(*self.batches[index])

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch."""
        return self.trainer.predict(self.batches[index][0])

    def tensors(self) -> Tensors:
        """Return all parameters and buffers by name."""
        return self.trainer.tensors()


if __name__ == "__main__":
    serve(torch.__version__, prepare)
