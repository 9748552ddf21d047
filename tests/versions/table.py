"""The table of supported releases, their test results, and the page that shows both.

python -m pockengine.tests.versions.table writes docs/versions.md.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "versions.md"
RESULTS = FOLDER / "results.jsonl"
RELEASES = ("oldest", "newest")

HEAD = """# Supported versions

The oldest and the newest release of each framework that PockEngine supports. A row is measured in a
fresh environment of pip: one layer is compiled, checked and trained, then the tests that
`tests/versions/rows.toml` names are run. The oldest releases are the lower bounds in
`pyproject.toml`. From the folder above the clone, `python -m pockengine.tests.versions.run`
measures rows, and `python -m pockengine.tests.versions.table` writes this page.

| framework | release | with | tests | date | result |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """One framework: `package` is the distribution of these releases."""

    name: str
    title: str
    package: str
    oldest: str
    newest: str
    tests: list[str]
    layer: str = ""
    beside: Mapping[str, list[str]] = field(default_factory=dict)

    def requirements(self, release: str) -> list[str]:
        """Return pip's requirements for the oldest or the newest release."""
        return [f"{self.package}=={getattr(self, release)}", *self.beside.get(release, ())]


@dataclass(frozen=True)
class Result:
    """The result of one release; `versions` are those of all of the row's packages."""

    framework: str
    release: str
    versions: Mapping[str, str]
    date: str
    passed: bool
    words: str


def rows() -> dict[str, Row]:
    """Read the table."""
    read: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "rows.toml").read_text())
    return {name: Row(name, beside=entry.pop("with", {}), **entry) for name, entry in read.items()}


def results() -> list[Result]:
    """Read the recorded results, the last one of each release."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    found = [Result(**json.loads(line)) for line in lines]
    return list({(one.framework, one.release): one for one in found}.values())


def record(results: Iterable[Result], file: Path) -> None:
    """Append a line of JSON per result."""
    with file.open("a") as out:
        out.writelines(f"{json.dumps(asdict(result))}\n" for result in results)


def page() -> str:
    """Return the page."""
    known = {(one.framework, one.release): one for one in results()}
    lines = []
    for row in rows().values():
        for release in RELEASES if row.oldest != row.newest else RELEASES[1:]:
            found = known.get((row.name, release))
            version = getattr(row, release)
            if found is None or found.versions.get(row.package) != version:
                lines.append(f"| {row.title} | {version} | | | | not measured |")
                continue
            others = {key: one for key, one in found.versions.items() if key != row.package}
            beside = ", ".join(f"{key} {one}" for key, one in others.items())
            verdict = "passes" if found.passed else "fails"
            lines.append(
                f"| {row.title} | {version} | {beside} | {found.words} | {found.date} | {verdict} |"
            )
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
