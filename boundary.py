"""The boundary between user code and ours: entry points raise only PockEngineError.

The traceback decides who raised a stray exception: the innermost frame that is PockEngine's or the
user's, ignoring libraries between them. Exceptions of user code (a model, a callback, a metric)
pass through unchanged. Exceptions of PockEngine's code become an InternalError, which asks for a
report; an OSError becomes a RuntimeFailure.
"""

import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache, wraps
from inspect import isfunction
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

from pockengine.arguments import check_arguments
from pockengine.errors import (
    SYSTEM_REASON,
    InternalError,
    PockEngineError,
    RuntimeFailure,
    reason_of,
)

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)

ROOT = Path(__file__).parent
NOT_OURS = ("tests/", "examples/", "studies/")
LIBRARIES = (sysconfig.get_paths()["stdlib"], "<")
CLICK = "click.exceptions"
"""Click's exceptions control the command (wrong usage, exit); they are not failures."""
FRAMEWORKS = (
    *("flax", "jax", "keras", "onnx", "onnxruntime", "peft", "tensorflow", "torch"),
    *("ai_edge_litert", "labgrid", "optuna", "paramiko", "sqlalchemy", "transformers"),
)
TORCH_MEMORY = "DefaultCPUAllocator: can't allocate memory"
REPORT = "report this message with its traceback and what `pockengine doctor` prints"


def theirs(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a user's function (callback, metric, schedule); its exceptions are the user's."""
    return function(*args, **kwargs)


def entry_point(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that our own code raises only PockEngineError.

    If the arguments do not match the annotations, that is the cause: ArgumentError.
    """

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            fault = stray(error, function.__qualname__)
            if fault is None:
                raise
            check_arguments(function, args, kwargs)
            raise fault from error
        if function.__name__ == "__init__":  # nothing has used them yet
            check_arguments(function, args, kwargs)
        return result

    return guarded


def entry_points(kind: C, *, constructor: bool = False) -> C:
    """Turn a class's own public methods, and a constructor that users call, into entry points."""
    if "_is_boundary" in vars(kind):
        return kind
    for name, value in list(vars(kind).items()):
        if isinstance(value, property) and value.fget and not name.startswith("_"):
            setattr(kind, name, property(entry_point(value.fget), doc=value.__doc__))
        elif isfunction(value) and (
            not name.startswith("_") or (constructor and name == "__init__")
        ):
            setattr(kind, name, entry_point(value))
    kind._is_boundary = True  # type: ignore[attr-defined]
    return kind


@cache
def public(value: Any) -> Any:
    """Return a name of the package as users get it, with functions and classes as entry points."""
    if isinstance(value, type):
        return value if issubclass(value, BaseException) else entry_points(value, constructor=True)
    return entry_point(value)


def stray(error: Exception, doing: str) -> PockEngineError | None:
    """Return the exception to raise in place of another; None to let it pass unchanged."""
    if isinstance(error, PockEngineError | Warning) or type(error).__module__ == CLICK:
        return None
    trace = error.__traceback__
    place = own_place(trace and trace.tb_next)
    if place is None:  # the user's, or the arguments do not fit the function
        return None
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and isinstance(error.filename, str):
        words = f"{error.filename}: {reason_of(error)}"
    refused = isinstance(error, OSError | MemoryError) or SYSTEM_REASON.search(words)
    if refused or TORCH_MEMORY in words:
        return RuntimeFailure(f"{doing}: {words}; the operating system refused it")
    used = releases()
    place += f", with {used}" if used else ""
    tested = "; docs/versions.md lists the releases that are tested" if used else ""
    return InternalError(
        f"{doing} failed: {words} (at {place}). "
        f"The fault is PockEngine's, not yours: {REPORT}{tested}"
    )


def releases() -> str:
    """List the imported frameworks with their versions."""
    versions = {name: getattr(sys.modules.get(name), "__version__", "") for name in FRAMEWORKS}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def own_place(trace: TracebackType | None) -> str | None:
    """Return file and line of the innermost frame of either, if it is PockEngine's."""
    found = [frame for frame in frames(trace) if not is_library(frame[0])]
    if not found or not is_own(found[-1][0]):
        return None
    code, line = found[-1]
    return f"{_within(code)}:{line}"


def frames(trace: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    """Yield code object and line of each frame, innermost last."""
    while trace is not None:
        yield trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next


def is_library(code: CodeType) -> bool:
    """Whether code is neither ours nor the user's; the wrapper of an entry point is neither."""
    if _within(code) == "boundary.py" and code is not theirs.__code__:
        return True
    place = _within(code) or code.co_filename
    compiled = place.endswith(".pyx")  # by Cython, whose paths are relative
    return compiled or place.startswith(LIBRARIES) or "-packages/" in place


def is_own(code: CodeType) -> bool:
    """Whether code belongs to the package, excluding its tests and examples."""
    place = _within(code)
    return place is not None and not place.startswith(NOT_OURS) and code is not theirs.__code__


def _within(code: CodeType) -> str | None:
    """Return a file's place in the package, wherever that is installed."""
    file, root = code.co_filename, f"{ROOT}/"
    return file.removeprefix(root) if file.startswith(root) else None
