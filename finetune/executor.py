"""Executors of trials: processes on this machine, or workers of a Dask cluster.

Both are `concurrent.futures` executors; callers may pass any other. A cluster's workers need this
package, and the folder of the trials under the same path.
"""

import asyncio
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pockengine.errors import FinetuneError

if TYPE_CHECKING:
    import distributed

PROCESSES = "processes"
_CONNECT_SECONDS = 20


@contextmanager
def open_executor(scheduler: str = PROCESSES, workers: int | None = None) -> Iterator[Executor]:
    """Open "processes" (`workers` of them, by default one per core) or "tcp://HOST:PORT".

    On exit, pending calls are cancelled; on an error or Ctrl-C, running processes are ended.
    FinetuneError if a cluster does not answer or the package
    `distributed` is missing.
    """
    if scheduler == PROCESSES:
        with _processes(workers or os.cpu_count()) as pool:
            yield pool
    elif "://" in scheduler:
        if workers is not None:
            raise FinetuneError(f"{scheduler} has its own workers; give no number of them")
        with _cluster(scheduler) as executor:
            yield executor
    else:
        raise FinetuneError(
            f"unknown scheduler {scheduler!r}; give {PROCESSES!r} or a Dask scheduler, tcp://..."
        )


@contextmanager
def _processes(workers: int | None) -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")  # a fork would copy locks of our threads
    with tempfile.TemporaryDirectory(prefix="pockengine-trials-") as folder:
        pool = ProcessPoolExecutor(workers, context, _prepare, (folder,))
        try:
            yield pool
        except BaseException:
            _kill(pool)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _kill(pool: ProcessPoolExecutor) -> None:
    """Cancel all calls, and end the workers without waiting for them."""
    # Private: Python 3.14 kills workers by a method. Without it the exit waits for them.
    workers = list((getattr(pool, "_processes", None) or {}).values())
    # Before the kills: a thread of the pool fails with a traceback if a worker dies while cancelled
    # calls are in its list (Python 3.11).
    pool.shutdown(wait=False, cancel_futures=True)
    for process in workers:
        process.kill()
    for process in workers:
        process.join()


def _prepare(folder: str) -> None:
    """Prepare a worker: its temporary files lie in `folder`, and the parent handles Ctrl-C.

    It exits when its parent is killed; otherwise it would wait for work forever.
    """
    tempfile.tempdir = folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        _greet(address)
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # whatever the reader raises for an invalid reply
        reason = (
            f"it is silent for {_CONNECT_SECONDS} s"
            if isinstance(error, TimeoutError)
            else repr(error)
        )
        raise FinetuneError(
            f"no Dask scheduler answers at {address}: {reason}; give the address that "
            "`dask scheduler` prints"
        ) from error
    with client, _ClusterExecutor(client) as executor:
        yield executor


def _greet(address: str) -> None:
    """Raise TimeoutError for a server that accepts but stays silent: a Client would wait forever.

    It uses a separate thread, as the caller's may run an event loop.
    """
    from distributed import Security
    from distributed.comm import connect

    async def greet() -> None:
        arguments = Security().get_connection_args("client")
        comm = await asyncio.wait_for(connect(address, **arguments), _CONNECT_SECONDS)
        await comm.close()

    with ThreadPoolExecutor(1) as alone:
        alone.submit(asyncio.run, greet()).result()


class _ClusterExecutor(Executor):
    """Submits to a cluster, which reruns calls lost with a worker.

    `Client.get_executor` fails if a worker leaves between the end of its trial and the fetch of its
    result.
    """

    def __init__(self, client: "distributed.Client") -> None:
        self._client = client
        self._futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> "Future[Any]":
        """Submit a call; cancelling its future cancels it on the cluster."""
        there = self._client.submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        future.add_done_callback(lambda done: there.cancel() if done.cancelled() else None)
        there.add_done_callback(partial(_pass_on, future))
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel unfinished calls."""
        for future in self._futures:
            future.cancel()


def _pass_on(future: "Future[Any]", there: "distributed.Future") -> None:
    """Copy the cluster's result to a future; runs in a thread of `distributed`."""
    if there.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(there.result())
    except Exception as error:
        future.set_exception(error)
