"""A small lab on loopback: labgrid's coordinator and exporter, in separate processes."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.labgrid.session import LabgridSession
from pockengine.farm.transports.lifetime import ending_with_us
from pockengine.tests.farm.helpers import eventually

START_S = 60.0


@contextmanager
def lab(folder: Path, ports: Mapping[str, int]) -> Iterator[str]:
    """Run a lab with a place for each SSH port on loopback; yield the coordinator's host:port."""
    address = f"127.0.0.1:{free_port()}"
    resources = folder / "resources.yaml"
    resources.write_text(
        "".join(
            f"{name}:\n  NetworkService:\n    address: 127.0.0.1\n    username: root\n"
            f"    port: {port}\n"
            for name, port in ports.items()
        )
    )
    with (
        _program(folder, "coordinator", "-l", address),
        _connected(address) as session,
        _program(folder, "exporter", "-c", address, "-n", "shelf", str(resources)),
    ):
        for name in ports:
            session.call("AddPlace", session.messages.AddPlaceRequest(name=name))
            match = session.messages.AddPlaceMatchRequest(
                placename=name, pattern=f"shelf/{name}/NetworkService"
            )
            session.call("AddPlaceMatch", match)
        assert eventually(
            lambda: all(session.service(session.places[name]) for name in ports), START_S
        ), "the exporter did not come up"
        yield address


@contextmanager
def _program(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    start = (
        f"import sys; sys.path[:] = {sys.path!r}; from labgrid.remote.{name} import main; main()"
    )
    command = ending_with_us([sys.executable, "-c", start, *arguments])
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _connected(address: str) -> Iterator[LabgridSession]:
    """Connect as an administrator once the coordinator listens."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            session = LabgridSession(address, "admin", "admin")
            break
        except FarmError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    with closing(session):
        yield session


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
