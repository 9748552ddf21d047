"""Sessions of generated C: an artifact's library, loaded in this process."""

import ctypes
import os
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.generation import Generation, Notify
from pockengine.backends.native.generation import generated
from pockengine.backends.native.library import (
    load_library,
    open_program,
    program_in,
    sizes_of,
)
from pockengine.backends.native.state_views import ProgressView, ScheduleView, from_views, to_views
from pockengine.backends.session import Progress, Session
from pockengine.errors import RuntimeFailure, TrainingDiverged

_DIVERGED = 7
"""PE_ERROR_DIVERGED of pe.h."""


class LibrarySession(Session):
    """An artifact's library with its memory and threads."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        super().__init__(artifact, threads)
        self._library = load_library(self.artifact)
        self._handle: int | None = open_program(self._library, artifact.name, threads)
        self._shut = weakref.finalize(self, _shut, self._library, self._handle, self._process)
        self._shut.atexit = False  # at exit, a thread may still be inside a step
        self.load(self.artifact.weights)

    def close(self) -> None:
        """End the threads and release the memory, after a concurrent call has finished.

        The session cannot be used afterwards.
        """
        if self._process != os.getpid():
            self._handle = None  # a forked process has no threads, maybe a held lock
            return
        with self._lock:
            self._handle = None
            self._shut()

    @property
    def positions(self) -> int:
        """Number of tokens, of a prompt and its answer, that `generate` has a cache for."""
        program = program_in(self._library, self.artifact.name)
        return int(self._library.pe_positions(program))

    def _generate(
        self, prompt: np.ndarray, how: Generation, cached: int, notify: Notify | None
    ) -> list[int]:
        return generated(partial(self._call, "pe_generate"), prompt, cached, how, notify=notify)

    def _run_entry(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        sizes = ctypes.byref(sizes_of(inputs, outputs))
        self._call("pe_call", entry.encode(), _pointers(inputs), _pointers(outputs), sizes)

    def _read_param(self, name: str, data: np.ndarray) -> None:
        self._call("pe_get_param", name.encode(), _address(data), data.nbytes)

    def _write_param(self, name: str, data: np.ndarray) -> None:
        self._call("pe_set_param", name.encode(), _address(data), data.nbytes)

    def _load_file(self, path: Path) -> Progress:
        progress, schedule = ProgressView(), ScheduleView()
        self._call("pe_load_weights", os.fsencode(path))
        self._library.pe_get_progress(self._handle, ctypes.byref(progress), ctypes.byref(schedule))
        return from_views(progress, schedule)

    def _save_file(self, path: Path, progress: Progress, whole: bool) -> None:
        views = map(ctypes.byref, to_views(progress))
        self._library.pe_set_progress(self._open(), *views)
        self._call("pe_save_checkpoint", os.fsencode(path), whole)

    def _open(self) -> int:
        if not self._handle:
            raise RuntimeFailure("the session is closed")
        return self._handle

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of the library on the session; RuntimeFailure with its message."""
        with self._locked():
            status = getattr(self._library, name)(self._open(), *arguments)
            if status:
                message: bytes = self._library.pe_message(self._handle)
                failure = TrainingDiverged if status == _DIVERGED else RuntimeFailure
                raise failure(message.decode(errors="replace"))


def _shut(library: ctypes.CDLL, handle: int, process: int) -> None:
    """End a session that was never closed, but not the parent's in a forked process."""
    if process == os.getpid():
        library.pe_shut(handle)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
