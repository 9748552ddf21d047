"""Where trials run: processes of this machine, or the workers of a Dask cluster.

Both are `concurrent.futures` executors, and so is whatever else a caller hands in. A cluster's
workers need this package and the folder of the trials under the same path.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from pockengine.errors import FinetuneError

PROCESSES = "processes"
_CONNECT_SECONDS = 20


@contextmanager
def open_executor(scheduler: str = PROCESSES, workers: int | None = None) -> Iterator[Executor]:
    """Open "processes" (`workers` of them, by default one for each core) or "tcp://HOST:PORT".

    On leaving, what has not begun is cancelled. FinetuneError where a cluster does not answer or
    the package `distributed` is missing.
    """
    if scheduler == PROCESSES:
        context = multiprocessing.get_context("spawn")  # a fork would copy our threads' locks
        pool = ProcessPoolExecutor(workers or os.cpu_count(), context, _end_with_parent)
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    elif "://" in scheduler:
        if workers is not None:
            raise FinetuneError(f"{scheduler} has its own workers; give no number of them")
        with _cluster(scheduler) as executor:
            yield executor
    else:
        raise FinetuneError(
            f"unknown scheduler {scheduler!r}; give {PROCESSES!r} or a Dask scheduler, tcp://..."
        )


def _end_with_parent() -> None:
    """Make a worker end when its parent is killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in a worker

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise FinetuneError(
            "a Dask scheduler needs the package distributed (pip install distributed)"
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise FinetuneError(f"no Dask scheduler answers at {address}: {error}") from error
    with client, client.get_executor() as executor:
        yield executor
