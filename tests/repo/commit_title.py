"""The commit-msg hook: a title is an imperative about the code, of at most 60 characters.

python tests/repo/commit_title.py .git/COMMIT_EDITMSG
"""

import re
import sys
from pathlib import Path

LONGEST = 60
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
"""First words of titles that Git writes."""
AREA = re.compile(r"^[\w.+/ -]{1,24}: ")
NO_VERBS = {
    *("a", "an", "how", "let", "say", "tell", "the", "their"),
    *("this", "what", "when", "where", "which", "why"),
}
VERBS = {
    *("bring", "embed", "exceed", "feed", "focus", "need"),
    *("ping", "proceed", "seed", "shed", "speed", "string"),
}
"""Verbs that end like other word forms."""


def fault(title: str) -> str | None:
    """Return a title's fault and its fix; None if it is valid."""
    if title.startswith(GENERATED):
        return None
    if len(title) > LONGEST:
        return f"it has {len(title)} characters; use at most {LONGEST}, and the body for the rest"
    if title.endswith("."):
        return "it ends with a period; leave that out"
    first = (AREA.sub("", title).split() or [""])[0].lower()
    if first in NO_VERBS:
        return f'"{first}" does not start an imperative; write "Fix ...", "CSE: keep ..."'
    if re.match(r"\w+ what ", AREA.sub("", title)):
        return 'it paraphrases with "what"; name the thing'
    if first not in VERBS and re.search(r"(?:ing|ed|[^s]s)$", first):
        return f'"{first}" is not an imperative; write "Add", not "Adds", "Added" or "Adding"'
    return None


def main(path: str) -> int:
    """Check the message in a file; return the exit status."""
    text = Path(path).read_text(encoding="utf-8")
    title = next((line for line in text.splitlines() if not line.startswith("#")), "")
    problem = fault(title) if title.strip() else "it is empty; write an imperative about the change"
    if problem is not None:
        print(f"commit title {title!r}: {problem}", file=sys.stderr)
    return int(problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
