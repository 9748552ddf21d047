"""The command `pockengine` as a fork of a process that has imported PyTorch.

A process takes six seconds of processor time to import what a trace needs, and the pages start a
dozen. Requests arrive over a socket in Linux's abstract namespace, whose names may be long.
"""

import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

PRELOADED = (
    *("torch", "torch._dynamo", "torch.export", "pockengine.frontends.torch.trace"),
    *("pockengine.cli.main", "pockengine.cli.compile", "pockengine.cli.inspect"),
)
READY = b"ready\n"
CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect("\\0" + {name!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
    socket.send_fds(server, [request.encode() + b"\\n"], [0, 1, 2])
    status = b"".join(iter(lambda: server.recv(1), b""))
sys.exit(status[0] if status else 255)
"""
"""A program that runs its arguments in a fork, with its own files, folder and environment."""


@contextmanager
def warm_command() -> Iterator[str]:
    """Start the process; yield the text of the program that takes the place of the command."""
    name = f"pockengine-docs-{token_hex(8)}"
    command = [sys.executable, "-m", "pockengine.tests.docs.warm_command", name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == READY
        try:
            yield CLIENT.format(name=name)
        finally:
            server.terminate()


def serve(name: str) -> None:
    """Fork for each request, one after the other."""
    for module in PRELOADED:
        __import__(module)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        os.write(1, READY)
        while True:
            client, _ = listener.accept()
            with client:
                child = os.fork()
                if not child:
                    listener.close()
                    _run(client)
                os.waitpid(child, 0)


def _run(client: socket.socket) -> None:
    """Run the command of a request, send its exit status, and exit."""
    message, files, *_ = socket.recv_fds(client, 1 << 16, 3)
    while not message.endswith(b"\n"):
        message += client.recv(1 << 16)
    sys.argv[1:], folder, environment = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path.insert(0, folder)
    status = 1
    try:
        runpy.run_module("pockengine.cli", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    finally:
        client.send(bytes([status]))
    sys.exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
