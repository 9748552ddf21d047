"""Our own engine as a framework of a worker, with any backend.

Ours is timed like the references: in a process of its own, through the same protocol, with the same
few microseconds of Python round each step. For this worker the engine of a prepare request is the
folder of an artifact for this machine, compiled from the job's model, weights and optimizer.

Only the worker may have a runtime's packages, so it also compiles: `WORKER compile REQUEST` handles
the request in the file (`own_compile.py`) and exits.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pockengine import __version__
from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.onnx.bindings import CONSTANTS
from pockengine.backends.registry import open_session
from pockengine.compiler.controls import RATE
from pockengine.errors import FarmError, PockEngineError
from pockengine.farm.references.job import JobData, Tensors
from pockengine.farm.references.serve import serve


class PreparedArtifact:
    """A session with its batches, by the artifact's input names."""

    def __init__(self, data: JobData, folder: str, threads: int) -> None:
        """Open the session; FarmError if the artifact does not train on a batch of images."""
        self.artifact = load_artifact(Path(folder))
        names = [name for name in self.artifact.entries["train"].inputs if name != RATE]
        if len(names) not in (1, 2):
            raise FarmError(f"{folder} reads {names}; a job has images and labels")
        self.rate = data.job.learning_rate
        self.batches = [
            dict(zip(names, batch, strict=False))  # a loss of its own reads no labels
            for batch in zip(data.images, data.labels, strict=True)
        ]
        self.session = open_session(self.artifact, threads)
        self.file_bytes = _file_bytes(self.artifact)

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


def _file_bytes(artifact: Artifact) -> int:
    """Return the bytes deployed to a device: a program and weights, or a runtime's files."""
    code = artifact.folder / "code"
    if artifact.backend == "c":
        files = [artifact.executable, artifact.weights]
    elif artifact.backend == "tflite":
        files = [*code.glob("*.tflite")]
    elif artifact.backend == "tvm":
        files = [artifact.library, code / CONSTANTS, artifact.weights]
    else:
        files = [*code.glob("*.onnx"), code / CONSTANTS, artifact.weights]
    return sum(file.stat().st_size for file in files)


def _release(package: str) -> str | None:
    """Return a package with its version, None if it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def work(*packages: str) -> None:
    """Be a worker: answer requests, or compile as the command line says.

    The version names the first of the runtime's packages that is here; none: our own C computes.
    """
    if sys.argv[1:2] != ["compile"]:
        releases = [release for package in packages if (release := _release(package))]
        serve(", ".join([__version__, *releases[:1]]), PreparedArtifact)
        return
    from pockengine.farm.references.own_compile import compile_request

    try:
        compile_request(Path(sys.argv[2]))
    except PockEngineError as error:
        sys.exit(f"{type(error).__name__}: {error}")
