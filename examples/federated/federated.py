"""Learn new digits with two clients that never share their pictures, one of them on a board.

    bazel run //examples/federated -- --device rpi4

A small CNN that knows the digits 0 to 4 learns 5 to 9 with a sparse scheme. One client has the
pictures of 5 to 8, the other, an emulated Raspberry Pi 4 behind SSH, those of 6 to 9. Server,
strategy and clients are Flower's, in one process. README.md explains how to distribute them over
machines, and where to add secure aggregation and differential privacy.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.common import (
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    NDArrays,
    ReconnectIns,
    Scalar,
    ndarrays_to_parameters,
)
from flwr.server import History, Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg
from rich.console import Console
from rich.table import Table
from torch import nn

from pockengine.api import compile
from pockengine.compiled import Compiled
from pockengine.devices import known_devices
from pockengine.errors import PockEngineError
from pockengine.examples.digits import BATCH, Digits, pretrain, split_digits
from pockengine.examples.federated.learners import BoardLearner, HostLearner, give, take
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.progress import step

SCHEME = Path(__file__).parent.parent / "sparse.toml"
STEPS, RATE = 20, 0.1
PARTS = ((0, 1, 2, 3), (1, 2, 3, 4))
"""Labels of each client's pictures: 0 is the digit 5."""

Judge = Callable[[int, NDArrays, dict[str, Scalar]], tuple[float, dict[str, Scalar]]]


class LocalProxy(ClientProxy):
    """The server's proxy of a client in the same process."""

    def __init__(self, name: str, client: NumPyClient) -> None:
        super().__init__(name)
        self.client = client.to_client()

    def get_properties(
        self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None
    ) -> GetPropertiesRes:
        """Forward the call."""
        return self.client.get_properties(ins)

    def get_parameters(
        self, ins: GetParametersIns, timeout: float | None, group_id: int | None
    ) -> GetParametersRes:
        """Forward the call."""
        return self.client.get_parameters(ins)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Forward the call."""
        return self.client.fit(ins)

    def evaluate(
        self, ins: EvaluateIns, timeout: float | None, group_id: int | None
    ) -> EvaluateRes:
        """Forward the call."""
        return self.client.evaluate(ins)

    def reconnect(
        self, ins: ReconnectIns, timeout: float | None, group_id: int | None
    ) -> DisconnectRes:
        """Do nothing: there is no connection."""
        return DisconnectRes(reason="the client is in this process")


def compile_for(model: nn.Module, device: str) -> Compiled:
    """Compile the common step of all clients for another device."""
    example = torch.zeros(BATCH, 1, 8, 8)
    return compile(
        model, (example,), loss="cross_entropy", optimizer="sgd", scheme=SCHEME, device=device
    )


def rows_of(digits: Digits, labels: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return the pictures with some labels, by the inputs' names."""
    chosen = np.isin(digits.labels, labels)
    return {"x": digits.images[chosen], "target": digits.labels[chosen]}


def judge_by(compiled: Compiled, test: Digits) -> Judge:
    """Return the server's evaluation of each round: on test pictures that no client has."""

    def judge(
        number: int, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[float, dict[str, Scalar]]:
        with compiled.session() as session:
            take(session, parameters)
            logits = [
                session.predict({"x": test.images[at : at + BATCH]})["output"]
                for at in range(0, len(test.images), BATCH)
            ]
        right = np.concatenate(logits).argmax(1) == test.labels
        return 1 - float(right.mean()), {"accuracy": float(right.mean())}

    return judge


def mean_loss(found: list[tuple[int, dict[str, Scalar]]]) -> dict[str, Scalar]:
    """Return the mean of the clients' losses, weighted by rows."""
    return {"loss": float(np.mean([float(metrics["loss"]) for _, metrics in found]))}


def federate(
    clients: dict[str, NumPyClient], server: Compiled, judge: Judge, rounds: int
) -> History:
    """Average the clients' weights with Flower's server for some rounds."""
    manager = SimpleClientManager()
    for name, client in clients.items():
        manager.register(LocalProxy(name, client))
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=len(clients),
        min_available_clients=len(clients),
        initial_parameters=ndarrays_to_parameters(give(server.trained)),
        on_fit_config_fn=lambda number: {"round": number, "steps": STEPS, "lr": RATE},
        evaluate_fn=judge,
        fit_metrics_aggregation_fn=mean_loss,
    )
    history, _ = Server(client_manager=manager, strategy=strategy).fit(rounds, timeout=None)
    return history


def show(history: History, bytes_: int, whole: int) -> Table:
    """Format the rounds as a table."""
    table = Table(title=f"{bytes_:,} of {whole:,} bytes travel each way, a round and client")
    for heading in ("round", "accuracy", "mean of the clients' last losses"):
        table.add_column(heading, justify="right")
    losses = dict(history.metrics_distributed_fit.get("loss", []))
    for number, accuracy in history.metrics_centralized["accuracy"]:
        loss = f"{losses[number]:.3f}" if number in losses else ""
        table.add_row(str(number), f"{accuracy:.1%}", loss)
    return table


@click.command()
@click.option("--device", default="rpi4", type=click.Choice(known_devices()), show_default=True)
@click.option("--rounds", default=8, show_default=True)
def main(device: str, rounds: int) -> None:
    """Federate a host and a board."""
    try:
        with ExitStack() as stack:
            with step("pretraining on the known digits in PyTorch"):
                model = pretrain()
            with step(f"compiling for this machine and {device}"):
                host, twin, far = (compile_for(model, name) for name in ("host", "host", device))
            train, test = split_digits(new=True)
            board = stack.enter_context(connect(board_for(device, load_boards())))
            clients = {
                "host": HostLearner(host, rows_of(train, PARTS[0])),
                "board": BoardLearner(board, far.artifact, twin.trained, rows_of(train, PARTS[1])),
            }
            with step(f"{rounds} rounds of {STEPS} steps"):
                history = federate(clients, host, judge_by(host, test), rounds)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    sizes = [array.nbytes for array in give(host.trained)]
    whole = sum(spec.type.nbytes for spec in host.artifact.params.values() if spec.kind == "param")
    Console().print(show(history, sum(sizes), whole))


if __name__ == "__main__":
    main()
