"""Compile Slang to SPIR-V with the compiler library of the wheel slangpy.

It needs neither a GPU nor a driver.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pockengine.errors import BuildError, MissingPackage

WHEEL, TESTED = "slangpy", "0.43.1"
LIBRARIES = ("libslang-compiler.so*", "libslang-compiler*.dylib")
PROFILE, OPTIONS = b"spirv_1_5", (b"-Wno-30081",)
"""SPIR-V of Vulkan 1.2. Warning 30081 is about ints as conditions, which the dialect has from C."""

SLANG, SPIRV, COMPUTE = 1, 6, 6
"""Slang's enumerators of a source language, a target and a stage."""

ERROR_LINES = 12

_POINTER = ctypes.c_void_p
_INTERFACE = {
    "spGetBuildTagString": (ctypes.c_char_p, ()),
    "spCreateSession": (_POINTER, (ctypes.c_char_p,)),
    "spFindProfile": (ctypes.c_int, (_POINTER, ctypes.c_char_p)),
    "spCreateCompileRequest": (_POINTER, (_POINTER,)),
    "spDestroyCompileRequest": (None, (_POINTER,)),
    "spSetCodeGenTarget": (None, (_POINTER, ctypes.c_int)),
    "spSetTargetProfile": (None, (_POINTER, ctypes.c_int, ctypes.c_int)),
    "spProcessCommandLineArguments": (ctypes.c_int, (_POINTER, _POINTER, ctypes.c_int)),
    "spAddTranslationUnit": (ctypes.c_int, (_POINTER, ctypes.c_int, ctypes.c_char_p)),
    "spAddTranslationUnitSourceString": (
        None,
        (_POINTER, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
    ),
    "spAddEntryPoint": (ctypes.c_int, (_POINTER, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)),
    "spCompile": (ctypes.c_int, (_POINTER,)),
    "spGetDiagnosticOutput": (ctypes.c_char_p, (_POINTER,)),
    "spGetEntryPointCode": (
        _POINTER,
        (_POINTER, ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)),
    ),
}


def build_spirv(text: str, functions: Sequence[str]) -> list[bytes]:
    """Compile each of a text's entry points to a module.

    BuildError with the compiler's first messages if it rejects the text.
    """
    library = _library()
    with _request(text) as (request, unit):
        numbers = [
            library.spAddEntryPoint(request, unit, name.encode(), COMPUTE) for name in functions
        ]
        status = library.spCompile(request)
        if status < 0:
            log = (library.spGetDiagnosticOutput(request) or b"").decode(errors="replace")
            lines = [line for line in log.splitlines() if line.strip()][:ERROR_LINES]
            raise BuildError("Slang rejects the kernels:\n" + "\n".join(lines))
        return [_code(request, number) for number in numbers]


def compiler_version() -> str:
    """Return the version of Slang's compiler."""
    tag: bytes = _library().spGetBuildTagString()
    return tag.decode()


@contextmanager
def _request(text: str) -> Iterator[tuple[int, int]]:
    """Yield a compile request, and the number of the text's translation unit in it."""
    library, session = _library(), _session()
    request = library.spCreateCompileRequest(session)
    try:
        library.spSetCodeGenTarget(request, SPIRV)
        library.spSetTargetProfile(request, 0, library.spFindProfile(session, PROFILE))
        options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
        library.spProcessCommandLineArguments(request, options, len(OPTIONS))
        unit = library.spAddTranslationUnit(request, SLANG, b"kernels")
        library.spAddTranslationUnitSourceString(request, unit, b"kernels.slang", text.encode())
        yield request, unit
    finally:
        library.spDestroyCompileRequest(request)


def _code(request: int, number: int) -> bytes:
    size = ctypes.c_size_t()
    data = _library().spGetEntryPointCode(request, number, ctypes.byref(size))
    return ctypes.string_at(data, size.value)


@cache
def _session() -> int:
    session: int = _library().spCreateSession(b"")
    return session


@cache
def _library() -> ctypes.CDLL:
    """Load the wheel's library; MissingPackage if it is not installed."""
    found = find_spec(WHEEL)
    folders = found.submodule_search_locations if found is not None else None
    folder = Path(next(iter(folders))) if folders else None
    paths = [path for name in LIBRARIES for path in sorted(folder.glob(name))] if folder else []
    if not paths:
        raise MissingPackage(f"building for Vulkan needs {WHEEL}: pip install {WHEEL}")
    library = ctypes.CDLL(str(paths[0]))
    for name, (result, arguments) in _INTERFACE.items():
        function = getattr(library, name, None)
        if function is None:
            raise BuildError(
                f"the compiler of {WHEEL} ({paths[0].name}) has no {name}, which building for "
                f"Vulkan calls: pip install {WHEEL}=={TESTED}"
            )
        function.restype, function.argtypes = result, arguments
    return library
