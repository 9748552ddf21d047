"""Flower clients whose training steps are compiled: one in this process, one on a board.

Only trained params are exchanged, as arrays in the artifact's order. The frozen weights are part of
the artifact, which each client has.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact
from pockengine.backends.session import Session
from pockengine.compiled import Compiled
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Transport

Arrays = dict[str, np.ndarray]
Config = dict[str, Scalar]


def traveling(artifact: Artifact) -> list[str]:
    """List the trained params."""
    specs = artifact.params.items()
    return [name for name, spec in specs if spec.trained and spec.kind == "param"]


def take(session: Session, parameters: NDArrays) -> None:
    """Start a round: load the server's params into a session, with fresh states."""
    session.restart()
    for name, array in zip(traveling(session.artifact), parameters, strict=True):
        session.set_param(name, array)


def give(session: Session) -> NDArrays:
    """Return the params for the server."""
    return [session.get_param(name) for name in traveling(session.artifact)]


class HostLearner(NumPyClient):
    """A client that trains in this process, on rows by the inputs' names."""

    def __init__(self, compiled: Compiled, rows: Arrays) -> None:
        self.compiled, self.rows = compiled, rows

    def fit(self, parameters: NDArrays, config: Config) -> tuple[NDArrays, int, Config]:
        """Train for a round's steps; return the weights, the number of rows, and the loss."""
        session = self.compiled.trained
        take(session, parameters)
        history = self.compiled.fit(
            self.rows, steps=int(config["steps"]), lr=float(config["lr"]), seed=int(config["round"])
        )
        return give(session), len(self.rows["target"]), {"loss": history.steps[-1].loss}


class BoardLearner(NumPyClient):
    """A client on a board: rows and artifact stay there, checkpoints are exchanged.

    `twin` is a session of the same model and scheme on this machine: it writes and reads the
    board's checkpoints.
    """

    def __init__(self, board: Transport, artifact: Artifact, twin: Session, rows: Arrays) -> None:
        self.board, self.artifact, self.twin = board, artifact, twin
        self._rows = len(rows["target"])
        self._folder = tempfile.TemporaryDirectory()
        self._place = Path(self._folder.name)
        save_file(rows, self._place / "rows.safetensors")

    def fit(self, parameters: NDArrays, config: Config) -> tuple[NDArrays, int, Config]:
        """Train for a round's steps on the board, with the runner."""
        take(self.twin, parameters)
        before = self._place / "global.safetensors"
        self.twin.save(before)
        arguments: tuple[str, ...] = ("train", "--weights", "weights", "--checkpoint", "global")
        arguments += ("--data", "rows")
        arguments += ("--steps", str(config["steps"]), "--lr", str(config["lr"]), "--shuffle")
        arguments += ("--seed", str(config["round"]), "--save", "local")
        inputs = {
            "weights": self.artifact.weights,  # like the rows sent once, by hash
            "rows": self._place / "rows.safetensors",
            "global": before,
        }
        job = Job(self.artifact.executable, arguments, inputs, ("local",))
        result = run_job(self.board, job, self._place / "out")
        self.twin.load(result.outputs["local"])
        lines = [json.loads(line) for line in result.run.stdout.splitlines()]
        losses = [line["loss"] for line in lines if "step" in line]
        return give(self.twin), self._rows, {"loss": losses[-1]}
