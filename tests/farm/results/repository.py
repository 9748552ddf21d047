"""Helpers for tests of comparisons: git in a folder, and a record of a count."""

import subprocess
from pathlib import Path

from pockengine.farm.results.results import Record
from pockengine.tests.farm.helpers import record


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def count(commit: str, value: float) -> Record:
    return record(commit=commit, value=value, min=value, max=value)
