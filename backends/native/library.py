"""An artifact's library in this process, checked against the manifest before any call."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.native.generation import GenerationView
from pockengine.backends.native.interface import program_symbol
from pockengine.backends.native.state_views import ProgressView, ScheduleView
from pockengine.backends.specification import ABI
from pockengine.errors import ArtifactError, RuntimeFailure, reason_of

MESSAGE_BYTES = 512
"""PE_MESSAGE_BYTES of pe.h."""


class MemorySizes(ctypes.Structure):
    """pe_sizes of pe_host.h: bytes of the memory behind each pointer."""

    _fields_: ClassVar = [
        ("inputs", ctypes.POINTER(ctypes.c_size_t)),
        ("outputs", ctypes.POINTER(ctypes.c_size_t)),
        ("input_count", ctypes.c_int),
        ("output_count", ctypes.c_int),
    ]


class Caller(ctypes.Structure):
    """pe_caller of pe.h: the structure versions that this package supports."""

    _fields_: ClassVar = [
        ("abi", ctypes.c_int),
        ("session_bytes", ctypes.c_size_t),
        ("message", ctypes.c_char_p),
        ("message_bytes", ctypes.c_size_t),
    ]


def sizes_of(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> MemorySizes:
    """Return the sizes of the arrays that a call reads and writes."""
    lists = [
        (ctypes.c_size_t * len(arrays))(*(array.nbytes for array in arrays))
        for arrays in (inputs, outputs)
    ]
    return MemorySizes(*lists, len(inputs), len(outputs))


def program_in(library: ctypes.CDLL, name: str) -> ctypes.c_void_p:
    """Return the address of a library's program; ValueError if it has none."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, program_symbol(name))))


def open_program(library: ctypes.CDLL, name: str, threads: int) -> int:
    """Return the address of a new session of a program; RuntimeFailure with the runtime's
    message.
    """
    text = ctypes.create_string_buffer(MESSAGE_BYTES)
    # No field of a session is read, so that none has a size here.
    caller = Caller(ABI, 0, ctypes.cast(text, ctypes.c_char_p), MESSAGE_BYTES)
    handle: int | None = library.pe_open_by(
        program_in(library, name), threads, ctypes.byref(caller)
    )
    if not handle:
        raise RuntimeFailure(text.value.decode(errors="replace"))
    return handle


def check_cpu(path: Path, lacking: bytes | None) -> None:
    """Raise ArtifactError if this processor lacks an extension that a library needs."""
    if lacking:
        raise ArtifactError(
            f"{path} was compiled for a processor with {lacking.decode()}, which this one lacks; "
            "compile the model on this machine"
        )


def _signatures() -> dict[str, tuple[object, list[object]]]:
    """Return the C types of the functions' results and arguments."""
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    views = [ctypes.POINTER(view) for view in (ProgressView, ScheduleView)]
    number = ctypes.c_int64
    return {
        "pe_cpu_lacks": (text, []),
        "pe_specification": (text, [pointer]),
        "pe_open_by": (pointer, [pointer, ctypes.c_int, ctypes.POINTER(Caller)]),
        "pe_shut": (None, [pointer]),
        "pe_call": (ctypes.c_int, [pointer, text, pointer, pointer, ctypes.POINTER(MemorySizes)]),
        "pe_message": (text, [pointer]),
        "pe_get_param": (ctypes.c_int, [pointer, text, pointer, size]),
        "pe_set_param": (ctypes.c_int, [pointer, text, pointer, size]),
        "pe_get_progress": (None, [pointer, *views]),
        "pe_set_progress": (None, [pointer, *views]),
        "pe_load_weights": (ctypes.c_int, [pointer, text]),
        "pe_save_checkpoint": (ctypes.c_int, [pointer, text, ctypes.c_int]),
        "pe_positions": (number, [pointer]),
        "pe_generate": (
            ctypes.c_int,
            [pointer, pointer, number, number, ctypes.POINTER(GenerationView), pointer, pointer],
        ),
    }


def load_library(artifact: Artifact) -> ctypes.CDLL:
    """Load the library with the C types of its functions; see pe_host.h and pe.h.

    ArtifactError if its program differs from the manifest's.
    """
    path = artifact.library
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeFailure(f"cannot load {path}: {reason_of(error)}") from error
    try:
        for name, (result, arguments) in _signatures().items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        check_cpu(path, library.pe_cpu_lacks())
        theirs = library.pe_specification(program_in(library, artifact.name))
    except (AttributeError, ValueError) as error:
        raise ArtifactError(f"{path} is no library of this version: {error}") from error
    if theirs != artifact.specification().digest().encode():
        raise ArtifactError(
            f"{path} belongs to another program than the artifact's manifest; compile the model "
            "again"
        )
    return library
