"""Whose fault an exception is that arises while a framework traces the user's model.

Our code and the user's lie between each other in such a traceback: a framework calls the model,
whose calls come by what stands in for the framework's functions. The innermost frame that is either
ours or the user's decides. Where ours calls what it was given, it does so by `theirs`.
"""

import sysconfig
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, TracebackType
from typing import ParamSpec, TypeVar

from pockengine.errors import InternalError

P = ParamSpec("P")
T = TypeVar("T")

ROOT = Path(__file__).parents[1]
OURS = tuple(f"{ROOT / part}/" for part in ("frontends", "compiler"))
LIBRARIES = (sysconfig.get_paths()["stdlib"], "<")


def theirs(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call code of the user or of a framework; what it raises is not ours."""
    return function(*args, **kwargs)


def own_fault(error: BaseException, doing: str, *packages: str) -> InternalError | None:
    """Return the error to raise where our code raised this one, None where other code did.

    `doing` says what failed, `packages` are the distributions whose versions matter.
    """
    frames = [frame for frame in _frames(error.__traceback__) if not _library(frame[0])]
    if not frames or not _ours(frames[-1][0]):
        return None
    code, line = frames[-1]
    place = f"{Path(code.co_filename).relative_to(ROOT)}:{line}"
    installed = ", ".join(filter(None, map(_installed, packages)))
    return InternalError(
        f"PockEngine failed while {doing}: {type(error).__name__}: {error} (at {place}, with "
        f"{installed}). The fault is PockEngine's, not the model's: install a release that "
        "docs/versions.md lists, or report this message"
    )


def _frames(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def _library(code: CodeType) -> bool:
    return code.co_filename.startswith(LIBRARIES) or "-packages/" in code.co_filename


def _ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and code is not theirs.__code__


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
