"""The order of commits, from git: which records came before which."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pockengine.errors import FarmError, reason_of

SHORT = 12  # digits of a commit in a record


def history(revision: str) -> list[str]:
    """Return the commits that lead to a revision, newest first, as records write them.

    Where branches were merged, they are those of the branch that was merged into.
    """
    return _git(["rev-list", "--first-parent"], revision)


def commits_between(last: str, revision: str) -> list[str]:
    """Return all commits after `last` up to a revision, those of merged branches too."""
    return _git(["rev-list"], f"{last}..{revision}")


def common_commit(first: str, second: str) -> str:
    """Return the newest commit that leads to both revisions."""
    return _git(["merge-base"], first, second)[0]


def _git(command: Sequence[str], *revisions: str) -> list[str]:
    """Return the commits that git answers with; FarmError if it does not know the revisions."""
    named = " and ".join(map(repr, revisions))
    if any(revision.startswith("-") for revision in revisions):
        raise FarmError(f"{named} is no revision of git")
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout()), *command, *revisions, "--"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise FarmError(f"cannot ask git for {named}: {reason_of(error)}") from None
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "nothing"
        fix = "fetch it, or name another"
        if "not a git repository" in message:
            fix = "run this in a clone of the repository"
        raise FarmError(f"git does not know {named} ({message}); {fix}")
    return [line[:SHORT] for line in done.stdout.split()]


def checkout() -> Path:
    """Return the repository whose commits records carry: the current folder's, if it is in one.

    Else it is that of the sources that run. Under `bazel run` the current folder is different, and
    Bazel gives the user's.
    """
    here = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or Path.cwd())
    inside = any((folder / ".git").exists() for folder in (here, *here.parents))
    return here if inside else Path(__file__).resolve().parent


def current_commit() -> str:
    """Return the commit that is checked out, with `-dirty` where the files differ from it."""
    try:
        done = subprocess.run(
            [
                "git",
                "-C",
                str(checkout()),
                "describe",
                "--always",
                "--dirty",
                "--abbrev=12",
                "--exclude=*",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
