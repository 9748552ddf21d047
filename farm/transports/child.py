"""Read a child process's output as it arrives, until a deadline."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from typing import IO


def collect(
    process: subprocess.Popen[bytes],
    deadline: float,
    stdout: Callable[[bytes], object],
    stderr: Callable[[bytes], object],
) -> None:
    """Read both streams to their ends and wait for the process; TimeoutError at the deadline."""
    with selectors.DefaultSelector() as selector:
        for stream, take in ((process.stdout, stdout), (process.stderr, stderr)):
            assert stream is not None  # both are pipes
            selector.register(stream, selectors.EVENT_READ, take)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if data:
                    key.data(data)
                else:
                    selector.unregister(key.fileobj)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what remains of a child that leads its process group, also on Ctrl-C, and reap it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in _streams(process):
        stream.close()


def _streams(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    return [stream for stream in (process.stdout, process.stderr) if stream is not None]
