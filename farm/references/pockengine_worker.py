"""The worker process that holds our own engine; see serve.py for what it answers.

Ours is timed like the references: in a process of its own, through the same protocol, with the same
few microseconds of Python round each step. For this worker the engine of a prepare request is the
folder of an artifact for this machine, compiled from the job's model, weights and optimiser.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pockengine import __version__
from pockengine.backends.artifact import load_artifact
from pockengine.backends.registry import open_session
from pockengine.backends.session import RATE
from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors
from pockengine.farm.references.serve import serve


class PockEngine:
    """Our engine, as a framework."""

    version = __version__

    def prepare(self, data: JobData, engine: str, threads: int) -> "PreparedArtifact":
        """Load an artifact, with the weights that it was compiled with."""
        return PreparedArtifact(Path(engine), data, threads)


class PreparedArtifact:
    """A session with its batches, by the names that the artifact gives to its inputs."""

    def __init__(self, folder: Path, data: JobData, threads: int) -> None:
        """Open the session; FarmError if the artifact does not train on a batch of images."""
        self.artifact = load_artifact(folder)
        names = [name for name in self.artifact.entries["train"].inputs if name != RATE]
        if len(names) not in (1, 2):
            raise FarmError(f"{folder} reads {names}; a job has images and labels")
        self.rate = data.job.learning_rate
        self.batches = [
            dict(zip(names, batch, strict=False))  # a loss of its own reads no labels
            for batch in zip(data.images, data.labels, strict=True)
        ]
        self.session = open_session(self.artifact, threads)

    def step(self, index: int) -> float:
        """Train on one batch and return its loss."""
        return float(self.session.train_step(self.batches[index], self.rate)["loss"])

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the predictions for a batch."""
        images = next(iter(self.batches[index].items()))
        (outputs,) = self.session.predict(dict([images])).values()
        return outputs

    def tensors(self) -> Tensors:
        """Return all params and states by name, in the layouts of the framework they came from."""
        tensors: Tensors = {}
        for name, array in self.session.params().items():
            permutation = self.artifact.params[name].permutation
            back = array if permutation is None else array.transpose(np.argsort(permutation))
            tensors[name] = np.array(back, order="C")
        return tensors


if __name__ == "__main__":
    serve(PockEngine())
