"""The order of commits, from git: which records came before which."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.results.results import Record

SHORT = 12  # digits of a commit in a record


def history(revision: str, folder: Path | None = None) -> list[str]:
    """Return the commits that lead to a revision, newest first, as records write them."""
    if revision.startswith("-"):
        raise FarmError(f"{revision!r} is no revision of git")
    command = ["git", "-C", str(folder or checkout()), "rev-list", "--first-parent", revision, "--"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise FarmError(f"cannot ask git for {revision!r}: {error}") from None
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "nothing"
        raise FarmError(f"git does not know {revision!r} ({message}); fetch it, or name another")
    return [line[:SHORT] for line in done.stdout.split()]


def checkout() -> Path:
    """Return the folder of the sources that run."""
    return Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or Path(__file__).resolve().parent)


def current_commit() -> str:
    """Return the commit of the sources that run, with `-dirty` where they differ from it."""
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


def newest_known(records: Sequence[Record], commits: Sequence[str]) -> list[Record]:
    """Return the records of the newest of the commits that has any; FarmError when none has."""
    known = {record.commit for record in records}
    for commit in commits:
        if commit in known:
            return [record for record in records if record.commit == commit]
    raise FarmError(
        f"no stored record of the last {len(commits)} commits of the baseline; run the bench there "
        f"first, with a clean checkout, into the same database"
    )
