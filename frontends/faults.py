"""Whose fault an exception is that arises while a framework traces the user's model.

Our code and the user's lie between each other in such a traceback: a framework calls the model,
whose calls come by what stands in for the framework's functions. The innermost frame that is either
ours or the user's decides. Where ours calls what it was given, it does so by `theirs`.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType

from pockengine.boundary import frames, is_library, theirs
from pockengine.errors import InternalError

ROOT = Path(__file__).parents[1]
OURS = (*(f"{ROOT / part}/" for part in ("frontends", "compiler")), f"{ROOT / 'boundary.py'}")

__all__ = ["OURS", "own_fault", "theirs"]


def own_fault(error: BaseException, doing: str, *packages: str) -> InternalError | None:
    """Return the error to raise where our code raised this one, None where other code did.

    `doing` says what failed, `packages` are the distributions whose versions matter.
    """
    found = [frame for frame in frames(error.__traceback__) if not is_library(frame[0])]
    if not found or not _ours(found[-1][0]):
        return None
    code, line = found[-1]
    place = f"{Path(code.co_filename).relative_to(ROOT)}:{line}"
    installed = ", ".join(filter(None, map(_installed, packages)))
    return InternalError(
        f"PockEngine failed while {doing}: {type(error).__name__}: {error} (at {place}, with "
        f"{installed}). The fault is PockEngine's, not the model's: install a release that "
        "docs/versions.md lists, or report this message"
    )


def _ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and code is not theirs.__code__


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
