"""Attribute an exception during a framework's trace of the user's model to us or the user.

Our code and the user's alternate in such a traceback: a framework calls the model, whose calls pass
through our stand-ins for the framework's functions. The innermost frame that is ours or the user's
decides. Our code calls user functions through `theirs`.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pockengine.boundary import frames, is_own, own_place, theirs
from pockengine.errors import InternalError

ROOT = Path(__file__).parents[1]
OURS = (*(f"{ROOT / part}/" for part in ("frontends", "compiler")), f"{ROOT / 'boundary.py'}")

MISTAKES = (AssertionError, AttributeError, NameError, TypeError)
"""Exceptions that indicate wrong code, rather than wrong data."""

__all__ = ["OURS", "check_own", "own_fault", "theirs"]


def own_fault(error: BaseException, doing: str, *packages: str) -> InternalError | None:
    """Return the error to raise if our code raised this one; None if other code did.

    `doing` says what failed, `packages` are the distributions whose versions matter.
    """
    place = own_place(error.__traceback__)
    if place is None:
        return None
    installed = ", ".join(filter(None, map(_installed, packages)))
    place += f", with {installed}" if installed else ""
    return InternalError(
        f"PockEngine failed while {doing}: {type(error).__name__}: {error} (at {place}). The fault "
        "is PockEngine's, not the model's: install a release that docs/versions.md lists, or "
        "report this message"
    )


def check_own(error: BaseException, doing: str, *packages: str) -> None:
    """Raise InternalError for a bug in our code while reading a file.

    Exceptions of a library for a damaged file, and numbers that do not fit, are the file's.
    """
    *_, (code, _) = frames(error.__traceback__)
    fault = (
        own_fault(error, doing, *packages) if isinstance(error, MISTAKES) and is_own(code) else None
    )
    if fault is not None:
        raise fault from error


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
