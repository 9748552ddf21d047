"""The worker process that fine-tunes language models, or generates, by our own C; see serve.py,
lm_job.py.

The engine of a prepare request is the folder of an artifact for this machine.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pockengine import __version__
from pockengine.backends.artifact import load_artifact
from pockengine.backends.generation import Generation
from pockengine.backends.registry import open_session
from pockengine.farm.references.job import Tensors
from pockengine.farm.references.lm_job import LmData, read_lm_job
from pockengine.farm.references.serve import Answerer, serve


def prepare(data: LmData, engine: str, threads: int) -> "PreparedOwnLm | OwnGenerator":
    """Load an artifact, with the weights that it was compiled with."""
    prepared = OwnGenerator if data.job.answer else PreparedOwnLm
    return prepared(Path(engine), data, threads)


class PreparedOwnLm:
    """A session with its batches."""

    def __init__(self, folder: Path, data: LmData, threads: int) -> None:
        """Open the session."""
        artifact = load_artifact(folder)
        self.rate = data.job.learning_rate
        self.batches = [data.inputs(index) for index in range(data.steps)]
        self.session = open_session(artifact, threads)
        self.file_bytes = artifact.executable.stat().st_size + artifact.weights.stat().st_size

    def step(self, index: int) -> float:
        """Train on one batch and return its loss."""
        return float(self.session.train_step(self.batches[index], self.rate)["loss"])

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch."""
        return self.session.predict(self.batches[index])["logits"]

    def tensors(self) -> Tensors:
        """Return nothing: the losses of later batches verify the weights."""
        return {}


class OwnGenerator(Answerer):
    """A session that answers a prompt."""

    def __init__(self, folder: Path, data: LmData, threads: int) -> None:
        """Open the session, and read the prompt if it is to be cached."""
        artifact = load_artifact(folder)
        self.prompt = data.prompt
        self.how = Generation(data.job.answer)
        self.cached = len(self.prompt) - 1 if data.job.cached else 0
        self.session = open_session(artifact, threads)
        self.file_bytes = artifact.weights.stat().st_size
        self.session.generate(self.prompt, self.how)

    def answer(self) -> list[int]:
        """Generate the tokens of the answer."""
        return self.session.generate(self.prompt, self.how, cached=self.cached)


if __name__ == "__main__":
    serve(__version__, prepare, read_lm_job)
