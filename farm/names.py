"""Names of boards, jobs and batches, which are also file names and table entries."""

import re

from pockengine.errors import FarmError

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.+ -]{0,98}[A-Za-z0-9_.+-])?")


def check_name(name: str, what: str) -> str:
    """Return the name if it is a valid file name on any system, else raise FarmError."""
    if not NAME.fullmatch(name):
        raise FarmError(
            f"{name!r} cannot name a {what}: up to 100 letters, digits and - _ . + only, "
            "a letter or digit first, and spaces between"
        )
    return name
