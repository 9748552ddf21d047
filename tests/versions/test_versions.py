"""The table of releases agrees with pyproject.toml, the locks, and its page.

Each framework's tests run the locked releases; `run.py` runs the others.
"""

import re
import tomllib

import pytest

from pockengine.tests.versions.table import PAGE, RELEASES, ROOT, Row, page, rows

LOCKS = ROOT / "third_party" / "pypi"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition(".post")[0]))


def bounds() -> dict[str, set[tuple[int, ...]]]:
    """Return the lower bounds of each distribution."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, set[tuple[int, ...]]] = {}
    for lines in project["optional-dependencies"].values():
        for line in lines:
            match = re.match(r"([\w-]+)(\[[^]]*\])?>=([\d.]+)", line)
            if match is not None:
                found.setdefault(match[1], set()).add(numbers(match[3]))
    return found


@pytest.mark.parametrize("row", rows().values(), ids=lambda row: row.name)
def test_oldest_release_is_the_lower_bound(row: Row) -> None:
    known = bounds()
    for requirement in row.requirements("oldest"):
        name, _, version = requirement.partition("==")
        if version and name in known:
            least = numbers(version)
            assert any(least[: len(bound)] == bound for bound in known[name]), requirement


@pytest.mark.parametrize("row", rows().values(), ids=lambda row: row.name)
def test_locked_release_is_in_range(row: Row) -> None:
    locked = {
        numbers(match[1])
        for lock in (*LOCKS.glob("*.lock"), LOCKS / "torch.in")  # PyTorch is locked without a hash
        if (match := re.search(rf"(?m)^{row.package}(?:\[[^]]*\])?==(\S+)", lock.read_text()))
    }
    assert locked
    assert all(numbers(row.oldest) <= version <= numbers(row.newest) for version in locked)


def test_each_row_has_its_tests() -> None:
    missing = [test for row in rows().values() for test in row.tests if not (ROOT / test).exists()]
    assert not missing
    assert all(row.tests and row.requirements(name) for row in rows().values() for name in RELEASES)


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run python -m pockengine.tests.versions.table"
